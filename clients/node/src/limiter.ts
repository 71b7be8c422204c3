/*
 * The limiter: every method of the protocol as a function, over one connection for the whole process.
 */
import { randomUUID } from 'node:crypto'
import { Connection, type Transport } from './connection.js'
import {
  type CombinedDecision,
  type Correction,
  type Decision,
  type Explanation,
  type Fields,
  arrayOf,
  combinedOf,
  correctionOf,
  decisionOf,
  decisionsOf,
  explanationOf,
  fieldsOf,
  flag,
  idOf,
} from './decision.js'
import { Denied, Refused, Unavailable, type UnavailableKind } from './errors.js'
import { FakeTransport } from './fake.js'
import { Reservation, Slot } from './holds.js'
import { type HeaderOptions, checkHeaderOptions } from './http.js'
import { boundedKey } from './keys.js'
import { checkOptions, checkWholeMs } from './options.js'
import { warnInsideRequest } from './warnings.js'

/** The name of a policy, or the settings of an inline policy as ratelimitd.yaml(5) has them. */
export type Policy = string | Readonly<Record<string, unknown>>
/** Text or bytes; at most 512 bytes are sent as they are, a longer key as its first 64 bytes, `#` and its SHA-256. */
export type Key = string | Uint8Array
/** [policy, key] or [policy, key, cost] */
export type Member = readonly [policy: Policy, key: Key, cost?: number]

/** What a middleware does with a request when nobody answers. */
export type OnError<Args extends unknown[] = unknown[]> =
  'allow' | 'deny' | ((error: Unavailable, ...args: Args) => 'allow' | 'deny' | Promise<'allow' | 'deny'>)

export interface DecisionEvent {
  readonly method: 'check' | 'check_all' | 'check_many' | 'acquire' | 'reserve'
  /** one, but of check_all those of all members */
  readonly policies: readonly Policy[]
  readonly decision: Decision
}

/** `headers` and `reset` are those of the middleware, unless a limit has its own. */
export interface LimiterOptions extends HeaderOptions {
  /** path of the daemon's socket; default $RATELIMIT_SOCKET, or /run/ratelimitd/ratelimitd.sock */
  readonly socket?: string | undefined
  /** of every call, connecting included; default 250 */
  readonly timeoutMs?: number | undefined
  /** of the middleware, unless a limit has its own; default 'allow' */
  readonly onError?: OnError | undefined
  /** false: everything is allowed and nobody is asked. Default: false where $RATELIMIT_ENABLED is 0 */
  readonly enabled?: boolean | undefined
  /** for what people should see; default: console */
  readonly logger?: { warn(message: string): void } | undefined
  /** is called with every decision; what it throws is logged */
  readonly onDecision?: ((event: DecisionEvent) => void) | undefined
}

export interface CallLimits {
  /** instead of the limiter's */
  readonly timeoutMs?: number | undefined
  /** an abort rejects with an AbortError, AbortSignal.timeout() with Unavailable */
  readonly signal?: AbortSignal | undefined
}

export interface CheckOptions extends CallLimits {
  /** units to charge; default 1; 0 charges nothing */
  readonly cost?: number | undefined
  /** instead of cost: as many units as are available, at most these; see `granted` */
  readonly atMost?: number | undefined
  /** the longest acceptable delayMs; 0: deny instead */
  readonly maxWaitMs?: number | undefined
  /** the daemon answers within this time, whatever its store does */
  readonly deadlineMs?: number | undefined
  /** 1 to 64 bytes: the same id with the same policy and key is charged once */
  readonly requestId?: string | undefined
  /** after a lost connection the call is sent again, once; with a requestId of its own unless there is one */
  readonly resend?: boolean | undefined
}

export type CheckAllOptions = Pick<CheckOptions, 'deadlineMs' | 'requestId' | 'resend' | keyof CallLimits>
export type RefundOptions = CheckAllOptions

export interface AcquireOptions extends CheckAllOptions {
  /** called once if the connection ends before the release */
  readonly onLost?: ((slot: Slot) => void) | undefined
}

export interface ReserveOptions extends CheckAllOptions {
  /** the reservation's time limit, 1 to 86400000; default 60000. Longer than the longest use */
  readonly ttlMs?: number | undefined
  /** an estimate that the policy can never admit becomes the policy's capacity */
  readonly clamp?: boolean | undefined
}

export interface Counters {
  checks: number
  allowed: number
  denied: number
  unavailable: Partial<Record<UnavailableKind, number>>
  refused: number
}

const CALL = ['timeoutMs', 'signal']
const CALL_ALL = [...CALL, 'deadlineMs', 'requestId', 'resend']
const CHECK = [...CALL_ALL, 'cost', 'atMost', 'maxWaitMs']
const ACQUIRE = [...CALL_ALL, 'onLost']
const RESERVE = [...CALL_ALL, 'ttlMs', 'clamp']
const LIMITER = ['socket', 'timeoutMs', 'onError', 'enabled', 'logger', 'onDecision', 'headers', 'reset']

const SOCKET_PATH_MAX_BYTES = 107
const PASSED_SAID_EVERY_MS = 10_000

interface Question<Result> {
  /** how many checks the counters count */
  checks?: number
  method: string
  params: unknown[]
  known: readonly string[]
  options: CallLimits & { resend?: boolean | undefined }
  read: (result: unknown) => Result
  undo?: (result: Result) => { method: string; params: unknown[] } | null
  mustSend?: boolean
}

export class RateLimiter {
  readonly onError: OnError
  readonly headerOptions: HeaderOptions
  /** false: everything is allowed, and the middleware asks nobody */
  readonly enabled: boolean
  readonly logger: { warn(message: string): void }
  /** since the limiter was made */
  readonly counters: Counters = { checks: 0, allowed: 0, denied: 0, unavailable: {}, refused: 0 }

  readonly #timeoutMs: number
  readonly #transport: Transport
  readonly #onDecision: ((event: DecisionEvent) => void) | undefined
  #passed = 0
  #passedSaidMs = -Infinity
  readonly #policies = new Map<string, Policy>() // that a middleware uses, for verify()

  /** Does not connect; the first call does. `transport` is for tests. */
  constructor(options: LimiterOptions = {}, transport?: Transport) {
    checkOptions('RateLimiter', options, LIMITER)
    const socket = options.socket ?? (process.env['RATELIMIT_SOCKET'] || '/run/ratelimitd/ratelimitd.sock')
    const bytes = Buffer.byteLength(socket)
    if (bytes === 0 || bytes > SOCKET_PATH_MAX_BYTES || socket.includes('\0'))
      throw new TypeError(`RateLimiter: socket is not a path of 1 to ${SOCKET_PATH_MAX_BYTES} bytes: ${socket}`)

    this.#timeoutMs = options.timeoutMs ?? 250
    checkWholeMs('RateLimiter: timeoutMs', this.#timeoutMs, 1)
    this.onError = options.onError ?? 'allow'
    checkOnError('RateLimiter', this.onError)
    checkHeaderOptions('RateLimiter', options)
    this.headerOptions = { headers: options.headers, reset: options.reset }
    this.enabled = options.enabled ?? process.env['RATELIMIT_ENABLED'] !== '0'
    this.logger = options.logger ?? console
    this.#onDecision = options.onDecision
    this.#transport = transport ?? (this.enabled ? new Connection(socket) : new FakeTransport({ records: false }))
    if (transport === undefined) warnInsideRequest('a RateLimiter')
  }

  // ---- checks ----------------------------------------------------------------------------------------------------

  /** May `key` do this now? A denial is a value too: look at `allowed`. */
  async check(policy: Policy, key: Key, options: CheckOptions = {}): Promise<Decision> {
    const asked = withRequestId(options)
    const { atMost, cost = atMost ?? 1 } = asked
    if (atMost !== undefined && options.cost !== undefined)
      throw new TypeError('check: cost and atMost exclude each other')

    const settings = {
      cost: cost === 1 ? undefined : options.cost,
      at_most: atMost,
      max_wait_ms: options.maxWaitMs,
      deadline_ms: options.deadlineMs,
      request_id: asked.requestId,
    }
    const decision = await this.#ask({
      method: 'check',
      checks: 1,
      params: [policy, boundedKey(key), ...optional(settings)],
      known: CHECK,
      options: asked,
      read: (result) => decisionOf(result, cost),
    })
    return this.#decided('check', [policy], decision)
  }

  /** All or nothing: every member is charged, or none is. */
  async checkAll(members: readonly Member[], options: CheckAllOptions = {}): Promise<CombinedDecision> {
    const asked = withRequestId(options)
    const costs = members.map(([, , cost = 1]) => cost)

    const decision = await this.#ask({
      method: 'check_all',
      checks: 1,
      params: [memberParams(members), ...optional({ deadline_ms: options.deadlineMs, request_id: asked.requestId })],
      known: CALL_ALL,
      options: asked,
      read: (result) => combinedOf(result, costs),
    })
    return this.#decided(
      'check_all',
      members.map(([name]) => name),
      decision,
    )
  }

  /** Independent checks in one message. */
  async checkMany(members: readonly Member[], options: CallLimits = {}): Promise<Decision[]> {
    const costs = members.map(([, , cost = 1]) => cost)

    const decisions = await this.#ask({
      method: 'check_many',
      checks: costs.length,
      params: [memberParams(members)],
      known: CALL,
      options,
      read: (result) => decisionsOf(result, costs),
    })
    for (const [i, decision] of decisions.entries()) this.#decided('check_many', [members[i]![0]], decision)
    return decisions
  }

  /** What a check of that cost would get now; nothing is charged. */
  async peek(
    policy: Policy,
    key: Key,
    options: CallLimits & { readonly cost?: number | undefined } = {},
  ): Promise<Decision> {
    const { cost = 0 } = options

    return this.#ask({
      method: 'peek',
      params: [policy, boundedKey(key), ...(cost === 0 ? [] : [cost])],
      known: [...CALL, 'cost'],
      options,
      read: (result) => decisionOf(result, cost),
    })
  }

  /** Why a check would get what it would get now, in words and figures. */
  async explain(
    policy: Policy,
    key: Key,
    options: CallLimits & { readonly cost?: number | undefined } = {},
  ): Promise<Explanation> {
    const { cost = 1 } = options

    return this.#ask({
      method: 'explain',
      params: [policy, boundedKey(key), cost],
      known: [...CALL, 'cost'],
      options,
      read: (result) => explanationOf(result, cost),
    })
  }

  /** Forgets what the key has used; with `policy/limit` only of that limit. True: there was something to forget. */
  async reset(policy: Policy, key: Key, options: CallLimits = {}): Promise<boolean> {
    return this.#ask({
      method: 'reset',
      params: [policy, boundedKey(key)],
      known: CALL,
      options,
      read: (result) => flag(fieldsOf(result), 'removed'),
    })
  }

  /** Gives back units that were charged and not used. */
  async refund(policy: Policy, key: Key, units: number, options: RefundOptions = {}): Promise<Correction> {
    const asked = withRequestId(options)

    return this.#ask({
      method: 'refund',
      params: [
        policy,
        boundedKey(key),
        units,
        ...optional({ deadline_ms: options.deadlineMs, request_id: asked.requestId }),
      ],
      known: CALL_ALL,
      options: asked,
      read: correctionOf,
    })
  }

  // ---- slots -----------------------------------------------------------------------------------------------------

  /** Takes a slot of a policy with a concurrency limit. `slot` is null when it was denied. */
  async tryAcquire(
    policy: Policy,
    key: Key,
    options: AcquireOptions = {},
  ): Promise<{ decision: Decision; slot: Slot | null }> {
    const asked = withRequestId(options)

    const answer = await this.#ask({
      method: 'acquire',
      checks: 1,
      params: [policy, boundedKey(key), ...optional({ deadline_ms: options.deadlineMs, request_id: asked.requestId })],
      known: ACQUIRE,
      options: asked,
      // the slot exists from here on, even before the caller runs again: its connection may end first
      read: (result) => this.#slotOf(result, options),
      undo: ({ id, slot }) => {
        slot?.disown()
        return id === null ? null : { method: 'release', params: [id] }
      },
    })
    this.#decided('acquire', [policy], answer.decision)
    return { decision: answer.decision, slot: answer.slot }
  }

  #slotOf(result: unknown, options: AcquireOptions): { decision: Decision; id: string | null; slot: Slot | null } {
    const decision = decisionOf(result, 1)
    const id = idOf(result, 'slot', decision)
    if (id === null) return { decision, id, slot: null }

    const slot = new Slot(decision, {
      hold: (onLost) => this.#transport.hold(onLost),
      onLost: (lost) => this.#protect('onLost', () => options.onLost?.(lost)),
      release: () =>
        this.#ask({
          method: 'release',
          params: [id],
          known: [],
          options: {},
          mustSend: true,
          read: (released) => flag(fieldsOf(released), 'released'),
        }),
    })
    return { decision, id, slot }
  }

  /** The same, but throws Denied. Works with `await using`. */
  async acquire(policy: Policy, key: Key, options: AcquireOptions = {}): Promise<Slot> {
    const { decision, slot } = await this.tryAcquire(policy, key, options)
    if (slot === null) throw new Denied(decision, `no slot of ${nameOf(policy)} is free`)

    return slot
  }

  /** Runs `work` with a slot, and releases it afterwards. Throws Denied when there is none. */
  async withSlot<Result>(
    policy: Policy,
    key: Key,
    work: (slot: Slot) => Result | Promise<Result>,
    options: AcquireOptions = {},
  ): Promise<Result> {
    const slot = await this.acquire(policy, key, options)
    try {
      return await work(slot)
    } finally {
      await slot.release()
    }
  }

  // ---- reservations ----------------------------------------------------------------------------------------------

  /** Charges an estimate, to be settled later. `reservation` is null when it was denied. */
  async tryReserve(
    policy: string,
    key: Key,
    estimate: number,
    options: ReserveOptions = {},
  ): Promise<{ decision: Decision; reservation: Reservation | null }> {
    const answer = await this.#reserve(policy, key, estimate, options)
    const { decision } = answer
    const isNever = !decision.allowed && decision.retryAfterMs === null
    if (!options.clamp || !isNever || decision.limit < 1 || decision.limit >= estimate) return answer

    return this.#reserve(policy, key, decision.limit, options)
  }

  async #reserve(
    policy: string,
    key: Key,
    estimate: number,
    options: ReserveOptions,
  ): Promise<{ decision: Decision; reservation: Reservation | null }> {
    const asked = withRequestId(options)
    const settings = { deadline_ms: options.deadlineMs, ttl_ms: options.ttlMs, request_id: asked.requestId }

    const { decision, id } = await this.#ask({
      method: 'reserve',
      checks: 1,
      params: [policy, boundedKey(key), estimate, ...optional(settings)],
      known: RESERVE,
      options: asked,
      read: (result) => {
        const decision = decisionOf(result, estimate)
        return { decision, id: idOf(result, 'reservation', decision) }
      },
      undo: (answer) => (answer.id === null ? null : { method: 'cancel', params: [answer.id] }),
    })
    this.#decided('reserve', [policy], decision)
    if (id === null) return { decision, reservation: null }

    const end = (method: string, ...params: unknown[]): Promise<Correction> =>
      this.#ask({ method, params: [id, ...params], known: [], options: {}, read: correctionOf })
    const reservation = new Reservation(id, decision, estimate, {
      settle: (actual) => end('settle', actual),
      cancel: () => end('cancel'),
    })
    return { decision, reservation }
  }

  /** The same, but throws Denied. `await using` cancels what was not settled. */
  async reserve(policy: string, key: Key, estimate: number, options: ReserveOptions = {}): Promise<Reservation> {
    const { decision, reservation } = await this.tryReserve(policy, key, estimate, options)
    if (reservation === null) throw new Denied(decision, `${estimate} units of ${policy} are not available`)

    return reservation
  }

  /** Runs `work` with a reservation. If it throws, it is cancelled; if it does not settle, the estimate stands. */
  async withReservation<Result>(
    policy: string,
    key: Key,
    estimate: number,
    work: (reservation: Reservation) => Result | Promise<Result>,
    options: ReserveOptions = {},
  ): Promise<Result> {
    const reservation = await this.reserve(policy, key, estimate, options)
    let result: Result
    try {
      result = await work(reservation)
    } catch (error) {
      if (!reservation.settled) await reservation.cancel().catch(() => {})
      throw error
    }

    if (!reservation.settled) await reservation.settle()
    return result
  }

  // ---- the daemon ------------------------------------------------------------------------------------------------

  /** The daemon's policies, with its own names of fields. */
  async policies(options: CallLimits = {}): Promise<Fields[]> {
    return this.#ask({
      method: 'policies',
      params: [],
      known: CALL,
      options,
      read: (result) => arrayOf(result).map(fieldsOf),
    })
  }

  /** The daemon's counters and gauges. Those of this limiter are `counters`. */
  async stats(options: CallLimits = {}): Promise<Record<string, number>> {
    return this.#ask({
      method: 'stats',
      params: [],
      known: CALL,
      options,
      read: (result) => fieldsOf(result) as Record<string, number>,
    })
  }

  /** Does a daemon answer? */
  async ping(options: CallLimits = {}): Promise<void> {
    await this.#ask({ method: 'ping', params: [], known: CALL, options, read: () => null })
  }

  async version(options: CallLimits = {}): Promise<Fields> {
    return this.#ask({ method: 'version', params: [], known: CALL, options, read: fieldsOf })
  }

  /** Any method of the protocol, for instance `test_clock`. */
  async call(method: string, params: readonly unknown[] = [], options: CallLimits = {}): Promise<unknown> {
    return this.#ask({ method, params: [...params], known: CALL, options, read: (result) => result })
  }

  /**
   * To be called at start: are all policies configured that the middleware of this limiter uses, and those named here?
   * Rejects with Refused: `missing` has the names. Inline settings are tried with a peek.
   */
  async verify(...more: Policy[]): Promise<void> {
    if (!this.enabled) return
    const used = [...this.#policies.values(), ...more]
    const names = new Set(used.filter((policy) => typeof policy === 'string'))
    const configured = new Set((await this.policies()).map((policy) => policy['name']))
    const missing = [...names].filter((name) => !configured.has(name))
    if (missing.length > 0)
      throw new Refused(
        'UNKNOWN_POLICY',
        `UNKNOWN_POLICY: the daemon's configuration lacks ${missing.join(', ')}`,
        missing,
      )

    for (const policy of used) {
      if (typeof policy === 'string') continue
      await this.peek(policy, 'verify').catch((error: unknown) => {
        if (!(error instanceof Refused) || error.code !== 'NOT_PERMITTED') throw error
        throw new Refused(
          error.code,
          `${error.message}. Limits that are written at an endpoint need this line in the daemon's configuration: inline: {allow: true}`,
        )
      })
    }
  }

  /** A middleware uses the policy: verify() will look for it. */
  uses(policy: Policy): void {
    this.#policies.set(typeof policy === 'string' ? policy : JSON.stringify(policy), policy)
  }

  /** A middleware lets a request through because nobody answered. Logged at most every ten seconds. */
  passedWithoutAnswer(error: Unavailable): void {
    this.#passed++
    const now = performance.now()
    if (now - this.#passedSaidMs < PASSED_SAID_EVERY_MS) return

    this.logger.warn(
      `ratelimitd: ${this.#passed} request(s) let through without a decision: ${error.kind}: ${error.message}`,
    )
    this.#passedSaidMs = now
    this.#passed = 0
  }

  /** Calls without an answer. */
  get pending(): number {
    return this.#transport.pending
  }

  /** Closes the connection. Slots end with it, calls on the way are lost. A process may simply exit instead. */
  close(): void {
    this.#transport.close()
  }

  [Symbol.dispose](): void {
    this.close()
  }

  // ---- one call --------------------------------------------------------------------------------------------------

  async #ask<Result>(question: Question<Result>): Promise<Result> {
    const { method, params, options, read, undo, mustSend } = question
    checkOptions(method, options, question.known)
    const timeoutMs = options.timeoutMs ?? this.#timeoutMs
    if (options.timeoutMs !== undefined) checkWholeMs(`${method}: timeoutMs`, timeoutMs, 1)

    this.counters.checks += question.checks ?? 0
    try {
      return await this.#transport.call(method, params, {
        timeoutMs,
        signal: options.signal,
        read,
        repeatable: options.resend === true,
        ...(undo && { undo }),
        ...(mustSend && { mustSend }),
      })
    } catch (error) {
      if (error instanceof Unavailable)
        this.counters.unavailable[error.kind] = (this.counters.unavailable[error.kind] ?? 0) + 1
      else if (error instanceof Refused) this.counters.refused++
      throw error
    }
  }

  #decided<D extends Decision>(method: DecisionEvent['method'], policies: readonly Policy[], decision: D): D {
    if (decision.allowed) this.counters.allowed++
    else this.counters.denied++
    if (this.#onDecision) this.#protect('onDecision', () => this.#onDecision?.({ method, policies, decision }))

    return decision
  }

  /** What the program's own functions throw must not end the connection. */
  #protect(what: string, run: () => void): void {
    try {
      run()
    } catch (error) {
      this.logger.warn(`ratelimitd: ${what} threw ${error instanceof Error ? error.stack : String(error)}`)
    }
  }
}

export function checkOnError(what: string, onError: unknown): void {
  if (onError !== 'allow' && onError !== 'deny' && typeof onError !== 'function')
    throw new TypeError(`${what}: onError is neither 'allow' nor 'deny' nor a function: ${String(onError)}`)
}

function nameOf(policy: Policy): string {
  return typeof policy === 'string' ? policy : JSON.stringify(policy)
}

function withRequestId<O extends Pick<CheckOptions, 'requestId' | 'resend'>>(options: O): O {
  return options.resend && options.requestId === undefined ? { ...options, requestId: randomUUID() } : options
}

/** The options of a request as its last parameter, or no parameter where there are none. */
function optional(settings: Record<string, unknown>): [] | [Record<string, unknown>] {
  for (const name in settings) if (settings[name] !== undefined) return [settings]

  return []
}

function memberParams(members: readonly Member[]): unknown[] {
  return members.map(([policy, key, cost = 1]) =>
    cost === 1 ? [policy, boundedKey(key)] : [policy, boundedKey(key), cost],
  )
}
