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
import type { Key, Member, OnError, RateLimiter } from './limiter.js'
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

export type Verdict =
  | { readonly passes: true; readonly fields: readonly Field[] }
  | { readonly passes: false; readonly denial: Denial; readonly respond: ((denial: Denial) => unknown) | null }

/** A limit that applies to this request. */
interface Asked<Args extends unknown[]> {
  readonly limit: CompiledLimit<Args>
  readonly key: Key
  readonly cost: number
}

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
    for (const { policy, enabled = true } of this.#limits) if (enabled) limiter.uses(policy)
    warnInsideRequest('rateLimit()')
  }

  /** Rejects where a limit is a mistake: an unknown policy, an empty key. The framework answers 500 then. */
  async admit(exchange: Exchange, args: Args): Promise<Verdict> {
    if (!this.limiter.enabled || isPreflight(exchange)) return { passes: true, fields: [] }
    const asked = await this.#asked(exchange, args)
    if (asked.length === 0) return { passes: true, fields: [] }

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
      if (!denying) return { passes: true, fields: [] }

      holdings?.giveBack()
      return this.#refused(denying, unavailableRefusal(exchange.header('accept')), null, args)
    }
  }

  /** The limits that apply, each with its key and cost; equal ones once. */
  async #asked(exchange: Exchange, args: Args): Promise<Asked<Args>[]> {
    const asked: Asked<Args>[] = []
    for (const limit of this.#limits) {
      if (limit.enabled === false || (limit.skip && (await limit.skip(...args)))) continue
      const value = limit.key ? await limit.key(...args) : this.#defaultKey(exchange)
      if (value === null) continue

      const endpoint = limit.perEndpoint ? exchange.endpoint() : ''
      const key = keyOf(value, endpoint)
      const cost = typeof limit.cost === 'function' ? await limit.cost(...args) : (limit.cost ?? 1)
      if (!asked.some((other) => isSame(other.limit, limit) && isSameKey(other.key, key)))
        asked.push({ limit, key, cost })
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
        const { decision, slot } = await this.limiter.tryAcquire(one.limit.policy, one.key)
        if (slot) holdings!.addSlot(slot)
        note(decision, [one])
      } else if (one.limit.chargeWhen) {
        const { decision, reservation } = await this.limiter.tryReserve(one.limit.policy as string, one.key, one.cost)
        if (reservation) holdings!.addReservation(reservation, one.limit)
        note(decision, [one])
      }
    }

    const plain = asked.filter(({ limit }) => !limit.slot && !limit.chargeWhen)
    if (!denied && plain.length === 1) {
      const { limit, key, cost } = plain[0]!
      note(await this.limiter.check(limit.policy, key, { cost }), plain)
    } else if (!denied && plain.length > 1) {
      const decision = await this.limiter.checkAll(
        plain.map(({ limit, key, cost }): Member => [limit.policy, key, cost]),
      )
      note(decision, plain, decision.members)
    }

    const fields = fieldsFor(reported, Date.now())
    if (denied) {
      holdings?.giveBack()
      return this.#refused(denying, deniedRefusal(denied, fields, exchange.header('accept')), denied, args)
    }
    if (delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs))
    return { passes: true, fields }
  }

  /** Without an answer the strictest of the limits decides: the first one that denies, or null. */
  async #denying(error: Unavailable, asked: readonly Asked<Args>[], args: Args): Promise<Asked<Args> | null> {
    for (const one of asked) {
      const rule = one.limit.onError ?? (this.limiter.onError as OnError<Args>)
      const choice = typeof rule === 'function' ? await rule(error, ...args) : rule
      if (choice !== 'allow') return one
    }

    this.limiter.passedWithoutAnswer(error)
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
function isSame<Args extends unknown[]>(one: CompiledLimit<Args>, other: CompiledLimit<Args>): boolean {
  const isOnePolicy =
    typeof one.policy === 'string'
      ? one.policy === other.policy
      : JSON.stringify(one.policy) === JSON.stringify(other.policy)

  return (
    isOnePolicy && Boolean(one.slot) === Boolean(other.slot) && Boolean(one.chargeWhen) === Boolean(other.chargeWhen)
  )
}

function isSameKey(one: Key, other: Key): boolean {
  return typeof one === 'string' || typeof other === 'string' ? one === other : Buffer.compare(one, other) === 0
}

function isPreflight(exchange: Exchange): boolean {
  return exchange.method === 'OPTIONS' && exchange.header('access-control-request-method') !== undefined
}

function keyOf(value: KeyValue, endpoint: string): Key {
  if (value === undefined || value === '')
    throw new TypeError('rateLimit: the key is empty. Return null where a request is not limited')
  if (value instanceof Uint8Array)
    return endpoint === '' ? value : Buffer.concat([Buffer.from(`${joinKey(endpoint)}|`), value])

  const key = typeof value === 'object' ? joinKey(...(value as readonly (string | number)[])) : String(value)
  return endpoint === '' ? key : `${joinKey(endpoint)}|${key}`
}
