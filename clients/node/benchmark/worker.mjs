// One worker process: measures one subject after another as the primary asks, at the same time as the other workers.
import { SUBJECTS } from './subjects.mjs'

const sockets = JSON.parse(process.env.SOCKETS)
const checks = new Map()
const keys = Array.from({ length: 1000 }, (_, i) => `192.0.2.${i}`)

/** Runs checks one after another until the time is over; returns how long each took, in microseconds. */
async function inTurn(check, untilMs) {
  const took = []
  for (let i = 0, now = performance.now(); now < untilMs; i++) {
    await check(keys[i % keys.length])
    const end = performance.now()
    took.push((end - now) * 1000)
    now = end
  }
  return took
}

process.on('message', async ({ subject, ms, inFlight }) => {
  if (!checks.has(subject)) checks.set(subject, await SUBJECTS[subject](sockets))
  const check = checks.get(subject)
  await inTurn(check, performance.now() + ms / 4) // warm

  const start = performance.now()
  const took = (await Promise.all(Array.from({ length: inFlight }, () => inTurn(check, start + ms))))
    .flat()
    .sort((a, b) => a - b)
  const seconds = (performance.now() - start) / 1000
  process.send({
    p50: took[took.length >> 1],
    p99: took[Math.floor(took.length * 0.99)],
    perSecond: took.length / seconds,
  })
})
