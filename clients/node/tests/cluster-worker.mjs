// What a worker of cluster.test.mjs does.
import { RateLimiter } from 'ratelimitd'

const limiter = new RateLimiter({ timeoutMs: 20000 })

if (process.env.JOB === 'checks') {
  const decisions = await Promise.all(Array.from({ length: 50 }, () => limiter.check('few', 'shared')))
  process.send(decisions.filter(({ allowed }) => allowed).length)
} else {
  const { slot } = await limiter.tryAcquire('one', 'k')
  process.send(slot !== null)
}
process.on('message', () => {}) // lives until it is killed
