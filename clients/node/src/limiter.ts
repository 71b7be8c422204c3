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
import { checkSettings, countsDenials, nameIn } from './policies.js'
import { RememberedDenials } from './remembered.js'
import { type Service, packageName, serviceLine, serviceOf } from './service.js'
import { warnInsideRequest } from './warnings.js'

/** The name of a policy, or the settings of an inline policy as ratelimitd.yaml(5) has them. */
export type Policy = string | Readonly<Record<string, unknown>>
/** Text or bytes; at most 512 bytes are sent as they are, a longer key as its first 64 bytes, `#` and its SHA-256. */
export type Key = string | Uint8Array
/** [policy, key] or [policy, key, cost] */
export type Member = readonly [policy: Policy, key: Key, cost?: number]

/** What a middleware does with a request without an answer. */
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
  /** false: everything is allowed and no daemon is asked. Default: false where $RATELIMIT_ENABLED is 0 */
  readonly enabled?: boolean | undefined
  /** for what people should see; default: console */
  readonly logger?: { warn(message: string): void } | undefined
  /** is called with every decision; what it throws is logged */
  readonly onDecision?: ((event: DecisionEvent) => void) | undefined
  /** how long a denial is repeated without asking, in milliseconds; default 0: not at all */
  readonly rememberDenialsMs?: number | undefined
  /**
   * in front of the keys of limits that are written at an endpoint; '' for none. Default: $RATELIMIT_SERVICE,
   * $OTEL_SERVICE_NAME, or the name in the program's package.json
   */
  readonly service?: string | undefined
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
  /** of `denied`: those that were remembered */
  remembered: number
  unavailable: Partial<Record<UnavailableKind, number>>
  refused: number
}

const CALL = ['timeoutMs', 'signal']
const CALL_ALL = [...CALL, 'deadlineMs', 'requestId', 'resend']
const CHECK = [...CALL_ALL, 'cost', 'atMost', 'maxWaitMs']
const ACQUIRE = [...CALL_ALL, 'onLost']
const RESERVE = [...CALL_ALL, 'ttlMs', 'clamp']
const LIMITER = [
  'socket',
  'timeoutMs',
  'onError',
  'enabled',
  'logger',
  'onDecision',
  'headers',
  'reset',
  'rememberDenialsMs',
  'service',
]

const SOCKET_PATH_MAX_BYTES = 107
const UNDECIDED_SAID_EVERY_MS = 10_000

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
  isOfConnection?: boolean
}

export class RateLimiter {
  readonly onError: OnError
  readonly headerOptions: HeaderOptions
  /** false: everything is allowed, and the middleware asks no daemon */
  readonly enabled: boolean
  readonly logger: { warn(message: string): void }
  /** since the limiter was made */
  readonly counters: Counters = { checks: 0, allowed: 0, denied: 0, remembered: 0, unavailable: {}, refused: 0 }

  readonly #timeoutMs: number
  readonly #transport: Transport
  readonly #onDecision: ((event: DecisionEvent) => void) | undefined
  readonly #service: Service
  readonly #denials: RememberedDenials | null
  readonly #endpoints = new Map<string, WeakRef<object> | 'written'>()
  readonly #givesBack = new Map<string, boolean>() // by name and version of a policy
  readonly #chargedLess = new Set<string>()
  readonly #equalNames = new Set<string>()
  #isServiceSaid = false
  #undecided = 0
  #undecidedSaidMs = -Infinity
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
    if (options.service !== undefined && typeof options.service !== 'string')
      throw new TypeError(`RateLimiter: service is not a text: ${String(options.service)}`)
    this.#service = serviceOf(options.service, process.env, packageName())
    const { rememberDenialsMs = 0 } = options
    checkWholeMs('RateLimiter: rememberDenialsMs', rememberDenialsMs, 0)
    this.#denials = rememberDenialsMs > 0 ? new RememberedDenials(rememberDenialsMs) : null
    this.#transport = transport ?? (this.enabled ? new Connection(socket) : new FakeTransport({ records: false }))
    if (transport === undefined) warnInsideRequest('a RateLimiter')
    if (!this.enabled)
      this.logger.warn(
        `ratelimitd: ${options.enabled === false ? 'the option enabled is false' : 'RATELIMIT_ENABLED=0'}: no limit is asked, every request passes`,
      )
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
    checkSettings('check', policy)
    checkOptions('check', options, CHECK)
    const isRepeatable = asked.requestId === undefined && atMost === undefined
    const question = isRepeatable ? this.#questionOf([[policy, key, cost]], options.maxWaitMs) : null
    const remembered = question && this.#denials!.find(question)
    if (remembered) return this.#repeated('check', [policy], remembered)

    const sinceMs = performance.now()
    const decision = await this.#ask({
      method: 'check',
      checks: 1,
      params: [policy, boundedKey(key), ...optional(settings)],
      known: CHECK,
      options: asked,
      read: (result) => named(decisionOf(result, cost), policy),
    })
    if (question) this.#denials!.keep(question, [subjectOf(policy, key)], decision, sinceMs)
    return this.#decided('check', [policy], decision)
  }

  /** All or nothing: every member is charged, or none is. */
  async checkAll(members: readonly Member[], options: CheckAllOptions = {}): Promise<CombinedDecision> {
    const asked = withRequestId(options)
    const costs = members.map(([, , cost = 1]) => cost)
    const policies = members.map(([policy]) => policy)
    for (const policy of policies) checkSettings('checkAll', policy)
    const question = asked.requestId === undefined ? this.#questionOf(members) : null
    const remembered = question && this.#denials!.find(question)
    if (remembered) return this.#repeated('check_all', policies, remembered as CombinedDecision)

    const sinceMs = performance.now()
    const decision = await this.#ask({
      method: 'check_all',
      checks: 1,
      params: [memberParams(members), ...optional({ deadline_ms: options.deadlineMs, request_id: asked.requestId })],
      known: CALL_ALL,
      options: asked,
      read: (result) => namedMembers(combinedOf(result, costs), policies),
    })
    const subjects = members.map(([policy, key]) => subjectOf(policy, key))
    if (question) this.#denials!.keep(question, subjects, decision, sinceMs)
    return this.#decided('check_all', policies, decision)
  }

  /** Independent checks in one message. */
  async checkMany(members: readonly Member[], options: CallLimits = {}): Promise<Decision[]> {
    const costs = members.map(([, , cost = 1]) => cost)
    for (const [policy] of members) checkSettings('checkMany', policy)

    const decisions = await this.#ask({
      method: 'check_many',
      checks: costs.length,
      params: [memberParams(members)],
      known: CALL,
      options,
      read: (result) => decisionsOf(result, costs).map((decision, i) => named(decision, members[i]![0])),
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
    checkSettings('peek', policy)

    return this.#ask({
      method: 'peek',
      params: [policy, boundedKey(key), ...(cost === 0 ? [] : [cost])],
      known: [...CALL, 'cost'],
      options,
      read: (result) => named(decisionOf(result, cost), policy),
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
    this.#denials?.forget(subjectOf(policy, key))
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
    this.#denials?.forget(subjectOf(policy, key))

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
      read: (result) => this.#slotOf(result, policy, options),
      undo: ({ id, slot }) => {
        slot?.disown()
        return id === null ? null : { method: 'release', params: [id] }
      },
    })
    this.#decided('acquire', [policy], answer.decision)
    return { decision: answer.decision, slot: answer.slot }
  }

  #slotOf(
    result: unknown,
    policy: Policy,
    options: AcquireOptions,
  ): { decision: Decision; id: string | null; slot: Slot | null } {
    const decision = named(decisionOf(result, 1), policy)
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
          isOfConnection: true,
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
    policy: Policy,
    key: Key,
    estimate: number,
    options: ReserveOptions = {},
  ): Promise<{ decision: Decision; reservation: Reservation | null }> {
    checkSettings('reserve', policy)
    if (typeof policy !== 'string' && !this.#transport.features.has('reserve_inline'))
      return this.#chargeFirst(policy, key, estimate, options)

    const answer = await this.#reserve(policy, key, estimate, options)
    const { decision } = answer
    const isNever = !decision.allowed && decision.retryAfterMs === null
    if (!options.clamp || !isNever || decision.limit < 1 || decision.limit >= estimate) return answer

    return this.#reserve(policy, key, decision.limit, options)
  }

  /** With a daemon that reserves by the names of policies alone: a check, and a refund of what was not used. */
  async #chargeFirst(
    policy: Policy,
    key: Key,
    estimate: number,
    options: ReserveOptions,
  ): Promise<{ decision: Decision; reservation: Reservation | null }> {
    checkOptions('reserve', options, RESERVE)
    const { timeoutMs, signal, deadlineMs } = options
    const decision = await this.check(policy, key, { cost: estimate, timeoutMs, signal, deadlineMs })
    if (!decision.allowed) return { decision, reservation: null }

    const settle = async (actual: number): Promise<Correction> => {
      if (actual < estimate) return this.refund(policy, key, estimate - actual)
      const more = actual > estimate ? await this.check(policy, key, { atMost: actual - estimate }) : null
      return { ...(more ?? decision), allowed: true, refunded: 0, charged: more?.granted ?? 0, ended: false }
    }
    return { decision, reservation: new Reservation('', decision, estimate, { settle, cancel: () => settle(0) }) }
  }

  async #reserve(
    policy: Policy,
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
        const decision = named(decisionOf(result, estimate), policy)
        return { decision, id: idOf(result, 'reservation', decision) }
      },
      undo: (answer) => (answer.id === null ? null : { method: 'cancel', params: [answer.id] }),
    })
    this.#decided('reserve', [policy], decision)
    if (id === null) return { decision, reservation: null }

    const end = (method: string, ...params: unknown[]): Promise<Correction> =>
      this.#ask({ method, params: [id, ...params], known: [], options: {}, mustSend: true, read: correctionOf })
    const reservation = new Reservation(id, decision, estimate, {
      settle: (actual) => end('settle', actual),
      cancel: () => end('cancel'),
    })
    return { decision, reservation }
  }

  /** The same, but throws Denied. `await using` cancels what was not settled. */
  async reserve(policy: Policy, key: Key, estimate: number, options: ReserveOptions = {}): Promise<Reservation> {
    const { decision, reservation } = await this.tryReserve(policy, key, estimate, options)
    if (reservation === null) throw new Denied(decision, `${estimate} units of ${nameOf(policy)} are not available`)

    return reservation
  }

  /** Runs `work` with a reservation. If it throws, it is cancelled; if it does not settle, the estimate stands. */
  async withReservation<Result>(
    policy: Policy,
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
    const policies = await this.policies()
    const configured = new Set(policies.map((policy) => policy['name']))
    if (this.#denials) this.#warnOfCountedDenials(policies.filter((policy) => names.has(policy['name'] as string)))
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

  #warnOfCountedDenials(policies: readonly Fields[]): void {
    const counting = policies.filter(
      ({ limits }) => Array.isArray(limits) && limits.some((limit) => (limit as Fields)['count_denied'] === true),
    )
    if (counting.length > 0)
      this.logger.warn(
        `ratelimitd: remembered denials are not counted, though count_denied is set: ${counting.map(({ name }) => name).join(', ')}`,
      )
  }

  /** There was no answer for a request of a middleware. Logged at most every ten seconds. */
  withoutAnswer(error: Unavailable, passes: boolean): void {
    this.#undecided++
    const now = performance.now()
    if (now - this.#undecidedSaidMs < UNDECIDED_SAID_EVERY_MS) return

    const what = passes ? 'requests pass' : 'requests are answered 503'
    this.logger.warn(`ratelimitd: ${this.#undecided} without a decision, ${what}: ${error.kind}: ${error.message}`)
    this.#undecidedSaidMs = now
    this.#undecided = 0
  }

  /** The service's name in front of endpoints; '' for none. Written into the log once. */
  get service(): string {
    if (!this.#isServiceSaid) this.logger.warn(`ratelimitd: ${serviceLine(this.#service)}`)
    this.#isServiceSaid = true

    return this.#service.name
  }

  /**
   * A name that a limit counts for, and what has it; `written` in the limit. Two with the same name would share their
   * counters by accident.
   */
  claimEndpoint(name: string, owner: object | 'written'): void {
    const known = this.#endpoints.get(name)
    const holder = known instanceof WeakRef ? known.deref() : known
    if (holder === owner) return
    if (holder !== undefined) {
      const message =
        `two endpoints have the name ${name}, so their limits would share counters. ` +
        'Write a name for one of them (the option endpoint), or the same name for both'
      if (!this.#equalNames.has(name)) this.logger.warn(`ratelimitd: ${message}`) // not every framework logs errors
      this.#equalNames.add(name)
      throw new Error(`rateLimit: ${message}`)
    }

    this.#endpoints.set(name, owner === 'written' ? owner : new WeakRef(owner))
  }

  /** Does a request that is refused later get its units back from this policy? Not if its denials count. */
  async givesBack(policy: Policy, version: number): Promise<boolean> {
    const known = this.#givesBack.get(`${nameIn(policy) ?? nameOf(policy)} ${version}`)
    if (known !== undefined) return known
    if (typeof policy === 'object') return policy['compat'] === undefined && !countsDenials(policy)

    const entry = (await this.policies()).find(({ name }) => name === policy)
    const limits = Array.isArray(entry?.['limits']) ? (entry['limits'] as Fields[]) : []
    const hasUnits = limits.every(({ algorithm }) => algorithm !== undefined && algorithm !== 'concurrency')
    const gives = entry !== undefined && hasUnits && !countsDenials(entry)
    this.#givesBack.set(`${policy} ${version}`, gives)
    return gives
  }

  /** The daemon takes no units of this policy back, or does not show whether it may: requests keep their charges. */
  keepsCharges(policy: Policy, version: number, error: Refused): void {
    const name = nameIn(policy) ?? nameOf(policy)
    if (error.code !== 'UNSUPPORTED' && !this.#givesBack.has(`${name} ${version}`))
      this.logger.warn(`ratelimitd: requests that are refused later stay charged in ${name}: ${error.message}`)
    this.#givesBack.set(`${name} ${version}`, false)
  }

  /** A request cost more than was reserved, and not all of it was left. Logged once for each policy. */
  chargedLess(policy: Policy): void {
    const name = nameIn(policy) ?? nameOf(policy)
    if (this.#chargedLess.has(name)) return

    this.#chargedLess.add(name)
    this.logger.warn(
      `ratelimitd: chargeWhen of ${name} gave more units than are left: only these were charged. A policy with debt charges all of them`,
    )
  }

  /** Waits until a daemon has said what it can do: before that, a limit that moves would count under another name. */
  async introduced(): Promise<void> {
    if (this.#transport.isIntroduced) return

    await this.#transport.call('ping', [], { timeoutMs: this.#timeoutMs, read: () => null }).catch(() => {})
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
    const { method, params, options, read, undo, mustSend, isOfConnection } = question
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
        ...(isOfConnection && { isOfConnection }),
      })
    } catch (error) {
      if (error instanceof Unavailable)
        this.counters.unavailable[error.kind] = (this.counters.unavailable[error.kind] ?? 0) + 1
      else if (error instanceof Refused) this.counters.refused++
      throw error
    }
  }

  /** What an equal check is known by; null where nothing is remembered. */
  #questionOf(members: readonly Member[], maxWaitMs?: number): string | null {
    if (!this.#denials) return null

    return JSON.stringify([maxWaitMs, ...members.map(([policy, key, cost = 1]) => [subjectOf(policy, key), cost])])
  }

  #repeated<D extends Decision>(method: DecisionEvent['method'], policies: readonly Policy[], decision: D): D {
    this.counters.checks++
    this.counters.remembered++
    return this.#decided(method, policies, decision)
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

/** A policy and key, whatever a limit of the policy is called. */
function subjectOf(policy: Policy, key: Key): string {
  const name = typeof policy === 'string' ? policy.split('/')[0] : policy
  return JSON.stringify([name, typeof key === 'string' ? key : [...key]])
}

const GENERATED_NAME = /^inline-[0-9a-f]{16}(?=\/|$)/

function renamed(text: string | null, name: string): string | null {
  return text === null ? null : text.replace(GENERATED_NAME, name)
}

/** With the name of an inline policy in place of the generated one. */
function named<D extends Decision>(decision: D, policy: Policy): D {
  const name = nameIn(policy)

  return name === null
    ? decision
    : { ...decision, of: renamed(decision.of, name), boundBy: renamed(decision.boundBy, name) }
}

function namedMembers(decision: CombinedDecision, policies: readonly Policy[]): CombinedDecision {
  if (policies.every((policy) => nameIn(policy) === null)) return decision

  // the whole has the generated name of one of its members
  const find = (text: string | null): string | null => {
    const generated = text === null ? null : (GENERATED_NAME.exec(text)?.[0] ?? null)
    const owner =
      generated === null
        ? -1
        : decision.members.findIndex(({ of }, i) => nameIn(policies[i]!) !== null && (of ?? '').startsWith(generated))
    return owner < 0 ? text : renamed(text, nameIn(policies[owner]!)!)
  }
  const members = decision.members.map((member, i) => named(member, policies[i]!))
  return { ...decision, of: find(decision.of), boundBy: find(decision.boundBy), members }
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
