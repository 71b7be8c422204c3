// What is measured. Each subject gives a function that makes one check of a key; counters are a fixed window that never denies.
import { createConnection } from 'node:net'
import { once } from 'node:events'
import { encodeRequest } from '../dist/esm/codec.js'

const LIMIT = 1e9

/** Requests that are encoded before, answers that are only counted: what the socket and the daemon cost. */
async function bareSocket({ memory }) {
  const socket = createConnection({ path: memory })
  await once(socket, 'connect')
  const waiting = []
  let length = 0 // of one answer; all are as long
  let read = 0
  socket.on('data', (data) => {
    length ||= data.length
    for (read += data.length; read >= length; read -= length) waiting.shift()()
  })
  const request = encodeRequest(1, 'check', ['web', 'one key of all'])
  return () =>
    new Promise((resolve) => {
      waiting.push(resolve)
      socket.write(request)
    })
}

const client = (store) => async (sockets) => {
  const { RateLimiter } = await import('ratelimitd')
  const limiter = new RateLimiter({ socket: sockets[store], timeoutMs: 60000 })
  return (key) => limiter.check('web', key)
}

/** One key, whose cost is above the limit, so it is denied for good: only the first check reaches the daemon. */
async function rememberedDenial({ memory }) {
  const { RateLimiter } = await import('ratelimitd')
  const limiter = new RateLimiter({ socket: memory, timeoutMs: 60000, rememberDenialsMs: 3600_000 })
  return () => limiter.check('full', 'one key of all', { cost: 2 })
}

/** A middleware by itself, without a server: the request and the answer are as small as it accepts. */
function asCheck(handler) {
  return (key) =>
    new Promise((resolve, reject) => {
      const request = {
        method: 'GET',
        headers: {},
        ip: key,
        path: '/',
        socket: { remoteAddress: key },
        app: { get: () => 1 },
        get: () => undefined,
      }
      const headers = new Map()
      const response = {
        headersSent: false,
        setHeader: (name, value) => void headers.set(name, value),
        getHeader: (name) => headers.get(name),
        append: (name, value) => void headers.set(name, value),
        once: () => {},
        on: () => {},
      }
      handler(request, response, (error) => (error ? reject(error) : resolve()))
    })
}

async function middleware({ redisStore }) {
  const { RateLimiter } = await import('ratelimitd')
  const { rateLimit } = await import('ratelimitd/express')
  return asCheck(
    rateLimit(new RateLimiter({ socket: redisStore, timeoutMs: 60000 }), {
      policy: 'web',
      key: (request) => request.ip,
    }),
  )
}

async function expressRateLimit({ redis }) {
  const { rateLimit } = await import('express-rate-limit')
  const { RedisStore } = await import('rate-limit-redis')
  const { Redis } = await import('ioredis')
  const connection = new Redis({ path: redis })
  const store = new RedisStore({ sendCommand: (command, ...args) => connection.call(command, ...args) })
  return asCheck(
    rateLimit({
      windowMs: 3600_000,
      limit: LIMIT,
      standardHeaders: 'draft-8',
      legacyHeaders: false,
      store,
      keyGenerator: (request) => request.ip,
      validate: false,
    }),
  )
}

async function rateLimiterFlexible({ redis }) {
  const { RateLimiterRedis } = await import('rate-limiter-flexible')
  const { Redis } = await import('ioredis')
  const limiter = new RateLimiterRedis({ storeClient: new Redis({ path: redis }), points: LIMIT, duration: 3600 })
  return (key) => limiter.consume(key)
}

export const SUBJECTS = {
  'bare socket, memory': bareSocket,
  'ratelimitd, memory': client('memory'),
  'ratelimitd, a remembered denial': rememberedDenial,
  'ratelimitd, Redis': client('redisStore'),
  'rate-limiter-flexible, Redis': rateLimiterFlexible,
  'ratelimitd/express, Redis': middleware,
  'express-rate-limit, Redis': expressRateLimit,
}
