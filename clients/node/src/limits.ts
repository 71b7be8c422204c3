/*
 * The options of a limit, checked when it is declared.
 */
import { type HeaderOptions, type Refusal, checkHeaderOptions } from './http.js'
import type { Decision } from './decision.js'
import type { KeyPart } from './keys.js'
import { type OnError, type Policy, checkOnError } from './limiter.js'
import { checkOptions } from './options.js'

type Awaitable<T> = T | Promise<T>

/** null: this request is not limited. An array: its parts are joined. */
export type KeyValue = string | number | bigint | Uint8Array | null | readonly KeyPart[]

/** Why a request does not go on, for `respond`. */
export interface Denial extends Refusal {
  /** null: nobody decided, and the limit has onError 'deny' */
  readonly decision: Decision | null
}

/** `Args`: what a handler of the framework gets: (request, response) or (context). */
export interface Limit<Args extends unknown[]> extends HeaderOptions {
  /** a policy of the daemon's configuration, or settings as there: {algorithm: 'token_bucket', limit: 100, window: '1m'} */
  readonly policy?: Policy | undefined
  /** instead of a policy: so many in each window, which begins with the first request */
  readonly limit?: number | undefined
  /** '5s', '10m', '1h', '1d', or milliseconds */
  readonly window?: string | number | undefined
  /** whom it counts for; default: the client's address */
  readonly key?: ((...args: Args) => Awaitable<KeyValue>) | undefined
  /** units; default 1 */
  readonly cost?: (number | ((...args: Args) => Awaitable<number>)) | undefined
  /** true: this request is not limited */
  readonly skip?: ((...args: Args) => Awaitable<boolean>) | undefined
  /** when nobody answers; default: the limiter's. 'deny' for logins */
  readonly onError?: OnError<Args> | undefined
  /** count only some requests, by their answer: the unit is reserved first, and given back if this returns false */
  readonly chargeWhen?: ((...args: Args) => Awaitable<boolean>) | undefined
  /** the policy is a concurrency limit: hold a slot until the answer has ended */
  readonly slot?: boolean | undefined
  /** answers a request that does not go on, instead of the usual 429 and 503 */
  readonly respond?: ((...args: [...Args, Denial]) => unknown) | undefined
  /** whether each endpoint counts for itself; default: true where limit and window are given, false for a policy */
  readonly perEndpoint?: boolean | undefined
  /** false: as if it were not there */
  readonly enabled?: boolean | undefined
}

/** A limit, the name of a policy, or a shorthand such as '10/5s' and '5000/day'. */
export type LimitInput<Args extends unknown[]> = string | Limit<Args>

const LIMIT = [
  'policy',
  'limit',
  'window',
  'key',
  'cost',
  'skip',
  'onError',
  'chargeWhen',
  'slot',
  'respond',
  'perEndpoint',
  'enabled',
  'headers',
  'reset',
]

/** A limit as it is used. */
export interface CompiledLimit<Args extends unknown[]> extends Limit<Args> {
  readonly policy: Policy
  readonly perEndpoint: boolean
}

const UNITS: Readonly<Record<string, string>> = {
  ms: 'ms',
  s: 's',
  m: 'm',
  h: 'h',
  d: 'd',
  second: 's',
  seconds: 's',
  minute: 'm',
  minutes: 'm',
  hour: 'h',
  hours: 'h',
  day: 'd',
  days: 'd',
}

function firstHit(limit: number, window: string): Policy {
  return { algorithm: 'fixed_window', limit, window, start: 'first_hit' }
}

/** '10/5s', '5000/day': the settings that are sent. Throws where it is not a limit. */
export function parseLimit(text: string): Policy {
  const [, limit, count, unit] = /^(\d+)\/(\d*)([a-z]+)$/.exec(text.replaceAll(' ', '')) ?? []
  const short = unit === undefined ? undefined : UNITS[unit]
  if (short === undefined || !Number.isSafeInteger(Number(limit)) || count === '0')
    throw new TypeError(`not a limit: ${text}. Write a number and a time, such as 10/5s or 5000/day`)

  return firstHit(Number(limit), `${count || '1'}${short}`)
}

/** Checks a limit and fills in its defaults. Throws TypeError. */
export function compileLimit<Args extends unknown[]>(input: LimitInput<Args>): CompiledLimit<Args> {
  if (typeof input === 'string') {
    const isShorthand = input.includes('/')
    return { policy: isShorthand ? parseLimit(input) : input, perEndpoint: isShorthand }
  }

  checkOptions('rateLimit', input, LIMIT)
  const { policy, limit, window, chargeWhen, slot, onError } = input
  if ((policy === undefined) === (limit === undefined))
    throw new TypeError('rateLimit: give either a policy, or limit and window')
  if ((limit === undefined) !== (window === undefined))
    throw new TypeError('rateLimit: limit and window belong together')
  if (policy === '') throw new TypeError('rateLimit: the name of the policy is empty')
  checkHeaderOptions('rateLimit', input)
  if (onError !== undefined) checkOnError('rateLimit', onError)
  if (chargeWhen && typeof policy !== 'string')
    throw new TypeError('rateLimit: chargeWhen needs the name of a policy, because a reservation does')
  if (chargeWhen && slot) throw new TypeError('rateLimit: chargeWhen and slot exclude each other')

  return {
    ...input,
    policy: policy ?? firstHit(limit!, typeof window === 'number' ? `${window}ms` : window!),
    perEndpoint: input.perEndpoint ?? policy === undefined,
  }
}
