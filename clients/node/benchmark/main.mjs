// Rounds in which every subject runs once, with one and with two worker processes; prints the medians.
import { fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { RateLimiter } from 'ratelimitd'
import { SUBJECTS } from './subjects.mjs'

const ROUNDS = Number(process.argv[2] ?? 5)
const MS = Number(process.argv[3] ?? 400)
const LOADS = [
  { workers: 1, inFlight: 1 },
  { workers: 2, inFlight: 1 },
  { workers: 2, inFlight: 64 },
]

const folder = await mkdtemp(join(tmpdir(), 'ratelimitd-bench-'))
const sockets = {
  redis: join(folder, 'redis'),
  memory: join(folder, 'memory'),
  redisStore: join(folder, 'redis-store'),
}
const children = []
let failure = null // of a program that did not start

function start(program, ...args) {
  const child = spawn(program, args, { stdio: 'ignore' })
  child.once('error', (error) => (failure = error))
  children.push(child)
}

async function until(look) {
  for (let attempt = 0; attempt < 500 && failure === null; attempt++) {
    if (await look()) return
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  throw failure ?? new Error('a server does not answer')
}

async function startDaemon(socket, store) {
  const config = `${socket}.yaml`
  const web = { algorithm: 'fixed_window', limit: 1e9, window: '1h', start: 'first_hit' }
  const policies = { web, full: { ...web, limit: 1 } }
  await writeFile(config, JSON.stringify({ ...store, log: { level: 'error' }, policies }))
  start(join(process.env.RATELIMITD_BUILD, 'bin', 'ratelimitd'), '-c', config, '-s', socket)
  const probe = new RateLimiter({ socket })
  await until(() =>
    probe.check('web', 'probe').then(
      ({ source }) => ['memory', 'redis'].includes(source),
      () => false,
    ),
  )
  probe.close()
}

const median = (values) => values.sort((a, b) => a - b)[values.length >> 1]

async function measure(workers, subject, inFlight) {
  const answers = await Promise.all(
    workers.map(async (worker) => {
      worker.send({ subject, ms: MS, inFlight })
      const [answer] = await once(worker, 'message')
      return answer
    }),
  )
  return {
    p50: Math.max(...answers.map(({ p50 }) => p50)),
    p99: Math.max(...answers.map(({ p99 }) => p99)),
    perSecond: answers.reduce((sum, { perSecond }) => sum + perSecond, 0),
  }
}

try {
  start(
    'redis-server',
    '--port',
    '0',
    '--unixsocket',
    sockets.redis,
    '--save',
    '',
    '--appendonly',
    'no',
    '--daemonize',
    'no',
    '--dir',
    folder,
  )
  await until(() => existsSync(sockets.redis))
  await startDaemon(sockets.memory, {})
  await startDaemon(sockets.redisStore, { store: { type: 'redis', redis: { addresses: [`unix:${sockets.redis}`] } } })

  const worker = fileURLToPath(new URL('worker.mjs', import.meta.url))
  const workers = Array.from({ length: 2 }, () =>
    fork(worker, { env: { ...process.env, SOCKETS: JSON.stringify(sockets) } }),
  )
  children.push(...workers)

  const found = LOADS.map(() => new Map(Object.keys(SUBJECTS).map((subject) => [subject, []])))
  for (let round = 0; round < ROUNDS; round++)
    for (const [i, { workers: n, inFlight }] of LOADS.entries())
      for (const subject of Object.keys(SUBJECTS).sort(() => Math.random() - 0.5))
        found[i].get(subject).push(await measure(workers.slice(0, n), subject, inFlight))

  console.log(
    `Node ${process.versions.node}, ${cpus().length} x ${cpus()[0].model}; medians of ${ROUNDS} rounds of ${MS} ms; the worst worker's times\n`,
  )
  for (const [i, { workers: n, inFlight }] of LOADS.entries()) {
    console.log(
      `${n} process${n > 1 ? 'es' : ''}, ${inFlight} in flight in each`.padEnd(34),
      'p50 us'.padStart(8),
      'p99 us'.padStart(8),
      'checks/s'.padStart(10),
    )
    for (const [subject, results] of found[i]) {
      const figure = (name) => Number(median(results.map((result) => result[name])).toPrecision(3)) // or below 1 us
      console.log(
        `  ${subject}`.padEnd(34),
        String(figure('p50')).padStart(8),
        String(figure('p99')).padStart(8),
        String(figure('perSecond')).padStart(10),
      )
    }
    console.log()
  }
} finally {
  for (const child of children) child.kill()
  await Promise.all(
    children.map((child) => child.pid && child.exitCode === null && child.signalCode === null && once(child, 'exit')),
  )
  await rm(folder, { recursive: true, force: true })
}
