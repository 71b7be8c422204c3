/*
 * The way of a request through the limits of its endpoint, the same in every framework. An adapter shows the request as
 * an Exchange, and carries out the verdict.
 *
 * Nothing is charged when one limit denies: slots and reservations come first and are given back, all other limits are
 * one check_all.
 */
import type { Decision } from './decision.js'
import { Unavailable } from './errors.js'
import type { Reservation, Slot } from './holds.js'
import { type Field, type Refusal, type Reported, deniedRefusal, fieldsFor, unavailableRefusal } from './http.js'
import { type Sender, ipKey, joinKey } from './keys.js'
import type { Key, Member, OnError, Policy, RateLimiter } from './limiter.js'
import { type CompiledLimit, type Denial, type KeyValue, type LimitInput, compileLimit } from './limits.js'
import { warnInsideRequest } from './warnings.js'

/** A request and its answer, as the limits see them. */
export interface Exchange extends Sender {
  readonly method: string
  /** the endpoint's own name, such as `GET /search`; '' where the limit stands in front of all endpoints */
  endpoint(): string
  /** Runs `ended` once when the answer has ended or the client is gone. */
  onEnd(ended: (isAnswered: boolean) => void): void
}

/** `GET /search`; '' without a path. HEAD is GET without a body: it counts there. */
export function endpointName(method: string, path: string | undefined): string {
  return path === undefined ? '' : `${method === 'HEAD' ? 'GET' : method} ${path}`
}

const USUAL_METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']

/** The method in an endpoint's name, of a route that has these: all of them count together where it has every one. */
export function methodOf(used: string, methods: readonly string[]): string {
  return USUAL_METHODS.every((method) => methods.includes(method)) ? 'ALL' : used
}

export type Verdict =
  | { readonly passes: true; readonly fields: readonly Field[]; readonly decision: Decision | null }
  | { readonly passes: false; readonly denial: Denial; readonly respond: ((denial: Denial) => unknown) | null }

/** A limit that applies to this request. */
interface Asked<Args extends unknown[]> {
  readonly limit: CompiledLimit<Args>
  readonly policy: Policy
  readonly key: Key
  readonly cost: number
}

const PASSED = { passes: true, fields: [], decision: null } as const

/** What was taken for this request and is given back at its end. */
class Holdings<Args extends unknown[]> {
  #slots: Slot[] = []
  #reservations: { reservation: Reservation; limit: CompiledLimit<Args> }[] = []
  #isEnded = false

  constructor(
    readonly limiter: RateLimiter,
    readonly args: Args,
    exchange: Exchange,
  ) {
    exchange.onEnd((isAnswered) => void this.#atEnd(isAnswered))
  }

  addSlot(slot: Slot): void {
    this.#slots.push(slot)
    if (this.#isEnded) this.giveBack() // the client left in the meantime
  }

  addReservation(reservation: Reservation, limit: CompiledLimit<Args>): void {
    this.#reservations.push({ reservation, limit })
    if (this.#isEnded) this.giveBack()
  }

  /** The request does not go on: nothing stays charged. */
  giveBack(): void {
    for (const slot of this.#slots.splice(0)) void slot.release()
    for (const { reservation } of this.#reservations.splice(0))
      reservation.cancel().catch((error: unknown) => this.#failed(error))
  }

  /** A request whose client left before its answer may have done its work: it counts. */
  async #atEnd(isAnswered: boolean): Promise<void> {
    this.#isEnded = true
    for (const slot of this.#slots.splice(0)) void slot.release()

    for (const { reservation, limit } of this.#reservations.splice(0)) {
      try {
        const counts = isAnswered ? await limit.chargeWhen!(...this.args) : true
        await (counts ? reservation.settle() : reservation.cancel())
      } catch (error) {
        this.#failed(error)
      }
    }
  }

  #failed(error: unknown): void {
    this.limiter.logger.warn(
      `ratelimitd: a reservation was not settled: ${error instanceof Error ? error.message : String(error)}`,
    )
  }
}

/** What a rateLimit() makes: once, for all requests. Nest's guard makes its limits itself, at a handler's first request. */
export function limitsOf<Args extends unknown[]>(
  limiter: RateLimiter,
  inputs: readonly LimitInput<Args>[],
): Limits<Args> {
  warnInsideRequest('rateLimit()')
  return new Limits<Args>(limiter, inputs)
}

export class Limits<Args extends unknown[]> {
  readonly #limits: readonly CompiledLimit<Args>[]
  readonly #defaultKey = ipKey()

  /** Checks everything that can be checked at the start. */
  constructor(
    readonly limiter: RateLimiter,
    inputs: readonly LimitInput<Args>[],
  ) {
    if (typeof limiter?.checkAll !== 'function')
      throw new TypeError('rateLimit: the first argument is not a RateLimiter')
    if (inputs.length === 0) throw new TypeError('rateLimit: there is no limit')
    this.#limits = inputs.map((input) => compileLimit(input))
    for (const { policy, enabled = true } of this.#limits) if (enabled && policy !== undefined) limiter.uses(policy)
    void limiter.service // is written into the log at the start
  }

  /** Rejects where a limit is a mistake: an unknown policy, an empty key. The framework answers 500 then. */
  async admit(exchange: Exchange, args: Args): Promise<Verdict> {
    if (!this.limiter.enabled || isPreflight(exchange)) return PASSED
    const asked = await this.#asked(exchange, args)
    if (asked.length === 0) return PASSED

    const needsEnd = asked.some(({ limit }) => limit.slot || limit.chargeWhen)
    const holdings = needsEnd ? new Holdings(this.limiter, args, exchange) : null
    try {
      return await this.#decide(asked, holdings, exchange, args)
    } catch (error) {
      if (!(error instanceof Unavailable)) {
        holdings?.giveBack()
        throw error
      }
      const denying = await this.#denying(error, asked, args)
      if (!denying) return PASSED

      holdings?.giveBack()
      return this.#refused(denying, unavailableRefusal(exchange.header('accept')), null, args)
    }
  }

  /** The limits that apply, each with its key and cost; equal ones once. */
  async #asked(exchange: Exchange, args: Args): Promise<Asked<Args>[]> {
    const asked: Asked<Args>[] = []
    for (const limit of this.#limits) {
      if (limit.enabled === false || (limit.skip && (await limit.skip(...args)))) continue
      const policy = await limit.policyOf(...args)
      if (policy === null) continue
      const value = limit.key ? await limit.key(...args) : this.#defaultKey(exchange)
      if (value === null) continue

      const endpoint = limit.perEndpoint ? exchange.endpoint() : ''
      const service = limit.perEndpoint && limit.isInline ? this.limiter.service : ''
      const key = keyOf(value, service, endpoint)
      const cost = typeof limit.cost === 'function' ? await limit.cost(...args) : (limit.cost ?? 1)
      const one = { limit, policy, key, cost }
      if (!asked.some((other) => isSame(other, one) && isSameKey(other.key, key))) asked.push(one)
    }
    return asked
  }

  async #decide(
    asked: readonly Asked<Args>[],
    holdings: Holdings<Args> | null,
    exchange: Exchange,
    args: Args,
  ): Promise<Verdict> {
    const reported: Reported[] = []
    let denied: Decision | null = null
    let denying = asked[0]!
    let delayMs = 0
    const note = (whole: Decision, limits: readonly Asked<Args>[], members: readonly Decision[] = [whole]): void => {
      for (const [i, decision] of members.entries()) {
        const { headers = this.limiter.headerOptions.headers, reset = this.limiter.headerOptions.reset } =
          limits[i]!.limit
        reported.push({ decision, whole, options: { headers, reset } })
      }
      if (!whole.allowed) {
        denied = whole
        denying =
          limits[
            Math.max(
              0,
              members.findIndex(({ allowed }) => !allowed),
            )
          ]!
      }
      delayMs = Math.max(delayMs, whole.delayMs)
    }

    for (const one of asked) {
      if (denied) break
      if (one.limit.slot) {
        const { decision, slot } = await this.limiter.tryAcquire(one.policy, one.key)
        if (slot) holdings!.addSlot(slot)
        note(decision, [one])
      } else if (one.limit.chargeWhen) {
        const { decision, reservation } = await this.limiter.tryReserve(one.policy, one.key, one.cost)
        if (reservation) holdings!.addReservation(reservation, one.limit)
        note(decision, [one])
      }
    }

    const plain = asked.filter(({ limit }) => !limit.slot && !limit.chargeWhen)
    if (!denied && plain.length === 1) {
      const { policy, key, cost } = plain[0]!
      note(await this.limiter.check(policy, key, { cost }), plain)
    } else if (!denied && plain.length > 1) {
      const decision = await this.limiter.checkAll(plain.map(({ policy, key, cost }): Member => [policy, key, cost]))
      note(decision, plain, decision.members)
    }

    const fields = fieldsFor(reported, Date.now())
    if (denied) {
      holdings?.giveBack()
      return this.#refused(denying, deniedRefusal(denied, fields, exchange.header('accept')), denied, args)
    }
    if (delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs))
    return { passes: true, fields, decision: leastOf(reported) }
  }

  /** Without an answer the strictest of the limits decides: the first one that denies, or null. */
  async #denying(error: Unavailable, asked: readonly Asked<Args>[], args: Args): Promise<Asked<Args> | null> {
    for (const one of asked) {
      const rule = one.limit.onError ?? (this.limiter.onError as OnError<Args>)
      const choice = typeof rule === 'function' ? await rule(error, ...args) : rule
      if (choice !== 'allow') {
        this.limiter.withoutAnswer(error, false)
        return one
      }
    }

    this.limiter.withoutAnswer(error, true)
    return null
  }

  #refused({ limit: { respond } }: Asked<Args>, refusal: Refusal, decision: Decision | null, args: Args): Verdict {
    return {
      passes: false,
      denial: { ...refusal, decision },
      respond: respond ? (denial) => respond(...args, denial) : null,
    }
  }
}

/** They ask the same of the same policy. */
function isSame<Args extends unknown[]>(one: Asked<Args>, other: Asked<Args>): boolean {
  const isOnePolicy =
    typeof one.policy === 'string'
      ? one.policy === other.policy
      : JSON.stringify(one.policy) === JSON.stringify(other.policy)

  return (
    isOnePolicy &&
    Boolean(one.limit.slot) === Boolean(other.limit.slot) &&
    Boolean(one.limit.chargeWhen) === Boolean(other.limit.chargeWhen)
  )
}

function isSameKey(one: Key, other: Key): boolean {
  return typeof one === 'string' || typeof other === 'string' ? one === other : Buffer.compare(one, other) === 0
}

/** For the handler: of several limits the one with least left; null: no decision was made. */
function leastOf(reported: readonly Reported[]): Decision | null {
  const decisions = reported.map(({ decision }) => decision)
  if (decisions.length === 0) return null

  return decisions.reduce((least, one) => (one.remaining < least.remaining ? one : least))
}

function isPreflight(exchange: Exchange): boolean {
  return exchange.method === 'OPTIONS' && exchange.header('access-control-request-method') !== undefined
}

/** `SERVICE|ENDPOINT|KEY`; what is empty is left out. */
export function keyOf(value: KeyValue, service: string, endpoint: string): Key {
  if (value === undefined || value === '')
    throw new TypeError('rateLimit: the key is empty. Return null where a request is not limited')

  const front = [service, endpoint].filter((part) => part !== '')
  if (value instanceof Uint8Array)
    return front.length === 0 ? value : Buffer.concat([Buffer.from(`${joinKey(...front)}|`), value])

  const key = typeof value === 'object' ? joinKey(...(value as readonly (string | number)[])) : String(value)
  return front.length === 0 ? key : `${joinKey(...front)}|${key}`
}
