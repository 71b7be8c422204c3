/*
 * The options of a limit, checked when it is declared.
 */
import { type HeaderOptions, type Refusal, checkHeaderOptions } from './http.js'
import type { Decision } from './decision.js'
import type { KeyPart } from './keys.js'
import { type OnError, type Policy, checkOnError } from './limiter.js'
import { checkOptions } from './options.js'
import { type OtherSettings, SETTINGS, SETTINGS_OF_ONE, checkSettings, isName } from './policies.js'

type Awaitable<T> = T | Promise<T>

/** What `key` and `policy` give for a request that is not limited. Nothing else means this. */
export const NOT_LIMITED: unique symbol = Symbol.for('ratelimitd.NOT_LIMITED') // one for ES modules and CommonJS
export type NotLimited = typeof NOT_LIMITED

/** An array: its parts are joined. Without a value, or a part, the request has no key and is answered 503. */
export type KeyValue =
  string | number | bigint | Uint8Array | NotLimited | null | undefined | readonly (KeyPart | null | undefined)[]

/** Why a request does not go on, for `respond`. */
export interface Denial extends Refusal {
  /** null: no decision was made, and the limit has onError 'deny' */
  readonly decision: Decision | null
}

/** A value, or a function of the request that gives it. */
type OfRequest<Value, Args extends unknown[]> = Value | ((...args: Args) => Awaitable<Value>)

/** `Args`: what a handler of the framework gets: (request, response) or (context). */
export interface Limit<Args extends unknown[]> extends HeaderOptions, OtherSettings {
  /** a policy of the daemon's configuration, or settings as there: {algorithm: 'token_bucket', limit: 100, window: '1m'} */
  readonly policy?: Policy | ((...args: Args) => Awaitable<Policy | NotLimited | null | undefined>) | undefined
  /** instead of a policy: so many in each window, which begins with the first request */
  readonly limit?: OfRequest<number, Args> | undefined
  /** '5s', '10m', '1h', '1d' */
  readonly window?: OfRequest<string, Args> | undefined
  /** of settings that are written here: what answers, logs and counters call the limit */
  readonly name?: string | undefined
  /** for whom it counts; default: the client's address */
  readonly key?: ((...args: Args) => Awaitable<KeyValue>) | undefined
  /** units; default 1 */
  readonly cost?: OfRequest<number, Args> | undefined
  /** what settings that are written here count for, in place of the route: endpoints with the same name share counters */
  readonly endpoint?: string | undefined
  /** true: this request is not limited */
  readonly skip?: ((...args: Args) => Awaitable<boolean>) | undefined
  /** without an answer; default: the limiter's. 'deny' for logins */
  readonly onError?: OnError<Args> | undefined
  /** count only some requests, by their answer: the unit is reserved first, and given back if this returns false. A number
   * is how many units it costs */
  readonly chargeWhen?: ((...args: Args) => Awaitable<boolean | number>) | undefined
  /** the policy is a concurrency limit: hold a slot until the answer has ended */
  readonly slot?: boolean | undefined
  /** answers a request that does not go on, instead of the usual 429 and 503 */
  readonly respond?: ((...args: [...Args, Denial]) => unknown) | undefined
  /** whether each endpoint counts for itself; default: true of settings that are written here, false for a policy */
  readonly perEndpoint?: boolean | undefined
  /** false: as if it were not there */
  readonly enabled?: boolean | undefined
}

/** A limit, the name of a policy, or a shorthand such as '10/5s' and '5000/day'. */
export type LimitInput<Args extends unknown[]> = string | Limit<Args>

/** The types that each option may have; `limit` and `window` are settings too. */
const TYPES: Readonly<Record<string, string>> = {
  policy: 'string object function',
  limit: 'number function',
  window: 'string function',
  name: 'string',
  endpoint: 'string',
  key: 'function',
  cost: 'number function',
  skip: 'function',
  onError: 'string function',
  chargeWhen: 'function',
  slot: 'boolean',
  respond: 'function',
  perEndpoint: 'boolean',
  enabled: 'boolean',
  headers: 'string',
  reset: 'string',
}

/** A limit as it is used. */
export interface CompiledLimit<Args extends unknown[]> extends Omit<Limit<Args>, 'policy'> {
  /** null: the function gave no policy */
  readonly policyOf: (...args: Args) => Awaitable<Policy | NotLimited | null>
  /** undefined: only the request tells */
  readonly policy: Policy | undefined
  /** undefined: where the function gives settings */
  readonly perEndpoint: boolean | undefined
  /** its numbers are those of the request */
  readonly moves: boolean
}

/** Settings that are written in the program count for their endpoint; a key of `compat` is sent as it is. */
export function isOfEndpoint(policy: Policy): boolean {
  return typeof policy === 'object' && policy['compat'] === undefined
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

function checkCount(limit: unknown): void {
  if (!Number.isSafeInteger(limit) || (limit as number) < 0)
    throw new TypeError(`rateLimit: limit is not a whole number from 0: ${String(limit)}`)
}

function checkWindow(window: unknown): void {
  const [, count, unit] = (typeof window === 'string' && /^(\d+)([a-z]+)$/.exec(window)) || []
  if (unit === undefined || !['us', 'ms', 's', 'm', 'h', 'd'].includes(unit) || Number(count) === 0)
    throw new TypeError(`rateLimit: window is not a time such as 500ms, 5s, 10m, 1h or 1d: ${String(window)}`)
}

function checkCost(cost: unknown): void {
  if (!Number.isSafeInteger(cost) || (cost as number) < 0)
    throw new TypeError(`rateLimit: cost is not a whole number from 0: ${String(cost)}`)
}

function checkTypes(input: object): void {
  checkOptions('rateLimit', input, [...new Set([...Object.keys(TYPES), ...SETTINGS_OF_ONE])])

  for (const [name, types] of Object.entries(TYPES)) {
    const value = (input as Record<string, unknown>)[name]
    if (value !== undefined && !types.split(' ').includes(typeof value))
      throw new TypeError(`rateLimit: ${name} is a ${typeof value}, not a ${types.replaceAll(' ', ' or a ')}`)
  }
}

/** The settings that are written in a limit, as far as they are values. */
function settingsOf(input: Record<string, unknown>): Record<string, unknown> {
  const settings: Record<string, unknown> = {}
  for (const name of SETTINGS_OF_ONE)
    if (input[name] !== undefined && typeof input[name] !== 'function') settings[name] = input[name]

  return input['algorithm'] === undefined ? { algorithm: 'fixed_window', start: 'first_hit', ...settings } : settings
}

function checkInline(settings: Readonly<Record<string, unknown>>): void {
  for (const name in settings)
    if (!SETTINGS.includes(name))
      throw new TypeError(`rateLimit: an inline policy has no setting ${name}; there are ${SETTINGS.join(', ')}`)
  if (settings['limit'] !== undefined) checkCount(settings['limit'])
  if (settings['window'] !== undefined && settings['algorithm'] !== 'calendar_window') checkWindow(settings['window'])
  checkSettings('rateLimit', settings)
}

/** A policy that is written as text: its name, or a shorthand. */
function policyIn(text: string): Policy {
  if (text.includes('/')) return parseLimit(text)
  if (!isName(text))
    throw new TypeError(`rateLimit: not the name of a policy: ${text}. A limit is written as 10/5s or 5000/day`)

  return text
}

/** What a function of the request gave. */
function checkedPolicy(policy: Policy | NotLimited | null | undefined): Policy | NotLimited | null {
  if (policy === NOT_LIMITED) return policy
  if (policy === null || policy === undefined || policy === '') return null
  if (typeof policy === 'string') return policyIn(policy)
  if (typeof policy !== 'object') throw new TypeError(`rateLimit: policy gave neither a name nor settings`)
  checkInline(policy)
  return policy
}

function withName(policy: Policy, name: string | undefined): Policy {
  if (name === undefined) return policy
  if (typeof policy === 'string')
    throw new TypeError('rateLimit: name is for settings that are written here; a policy of the configuration has one')
  const named = { ...policy, name }
  checkSettings('rateLimit', named)
  return named
}

/** Checks a limit and fills in its defaults. Throws TypeError. */
export function compileLimit<Args extends unknown[]>(input: LimitInput<Args>): CompiledLimit<Args> {
  if (typeof input === 'string') return compileLimit<Args>({ policy: input })

  checkTypes(input)
  const { policy, limit, window, name, endpoint, chargeWhen, slot, onError, cost } = input
  const { algorithm } = input
  if ((policy === undefined) === (limit === undefined && algorithm === undefined))
    throw new TypeError('rateLimit: give either a policy, or limit and window')
  if (policy === undefined && limit !== undefined && window === undefined && algorithm !== 'concurrency')
    throw new TypeError('rateLimit: limit and window belong together')
  checkHeaderOptions('rateLimit', input)
  if (onError !== undefined) checkOnError('rateLimit', onError)
  if (cost !== undefined && typeof cost !== 'function') checkCost(cost)
  if (endpoint === '') throw new TypeError('rateLimit: endpoint is empty')
  if (chargeWhen && slot) throw new TypeError('rateLimit: chargeWhen and slot exclude each other')

  const options = { ...input, policy: undefined }
  if (typeof policy === 'function') {
    if (name !== undefined) throw new TypeError('rateLimit: name is for settings that are written here')
    const policyOf = async (...args: Args): Promise<Policy | NotLimited | null> => checkedPolicy(await policy(...args))
    return { ...options, policyOf, perEndpoint: input.perEndpoint, moves: true }
  }
  if (policy !== undefined) {
    const found = withName(typeof policy === 'string' ? policyIn(policy) : policy, name)
    if (typeof found === 'object') checkInline(found)
    const perEndpoint = input.perEndpoint ?? isOfEndpoint(found)
    return { ...options, policy: found, policyOf: () => found, perEndpoint, moves: false }
  }

  const settings = settingsOf(input as Record<string, unknown>)
  const perEndpoint = input.perEndpoint ?? isOfEndpoint(settings)
  checkInline(settings)
  if (typeof limit !== 'function' && typeof window !== 'function')
    return { ...options, perEndpoint, policy: settings, policyOf: () => settings, moves: false }

  const policyOf = async (...args: Args): Promise<Policy> => {
    const made = {
      ...settings,
      limit: typeof limit === 'function' ? await limit(...args) : limit,
      window: typeof window === 'function' ? await window(...args) : window,
    }
    checkInline(made)
    return made
  }
  return { ...options, perEndpoint, policyOf, moves: true }
}
