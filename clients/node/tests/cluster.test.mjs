// Worker processes share the daemon's limits, and what a killed worker held is free again.
import assert from 'node:assert/strict'
import cluster from 'node:cluster'
import { once } from 'node:events'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { eventually, patient, startDaemon } from './harness.mjs'

cluster.setupPrimary({ exec: fileURLToPath(new URL('cluster-worker.mjs', import.meta.url)), args: [] })

async function worker(job, socket) {
  const child = cluster.fork({ JOB: job, RATELIMIT_SOCKET: socket })
  const [answer] = await once(child, 'message')
  return { child, answer }
}

test('eight processes at once get as many units as there are', async () => {
  const daemon = await startDaemon({ few: { algorithm: 'fixed_window', limit: 100, window: '1d', start: 'first_hit' } })
  const workers = await Promise.all(Array.from({ length: 8 }, () => worker('checks', daemon.socket)))

  assert.equal(
    workers.reduce((sum, { answer }) => sum + answer, 0),
    100,
  )
  for (const { child } of workers) child.kill()
  await daemon.stop()
})

test('the slot of a killed worker is free again', async () => {
  const daemon = await startDaemon({ one: { algorithm: 'concurrency', limit: 1 } })
  const limiter = patient({ socket: daemon.socket })
  const { child, answer } = await worker('slot', daemon.socket)
  assert.equal(answer, true)
  assert.equal((await limiter.tryAcquire('one', 'k')).slot, null)

  child.process.kill('SIGKILL')
  await eventually(async () => (await limiter.tryAcquire('one', 'k')).slot)
  limiter.close()
  await daemon.stop()
})
