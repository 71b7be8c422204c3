/*
 * The way of a request through the limits of one place, the same in every framework. An adapter shows the request as an
 * Exchange, and carries out the verdict. What the places of one request have in common is in visit.ts.
 *
 * Nothing is charged when one limit denies: slots and reservations come first and are given back, all other limits are
 * one check_all; and so is what earlier places of the request charged.
 */
import type { Decision } from './decision.js'
import { Unavailable } from './errors.js'
import { type Field, type Refusal, type Reported, deniedRefusal, unavailableRefusal } from './http.js'
import { type KeyPart, type Sender, ipKey, joinKey } from './keys.js'
import type { Key, Member, OnError, Policy, RateLimiter } from './limiter.js'
import {
  type CompiledLimit,
  type Denial,
  type KeyValue,
  type LimitInput,
  NOT_LIMITED,
  compileLimit,
  isOfEndpoint,
} from './limits.js'
import { subjectOf, withId } from './policies.js'
import { traceDecision } from './telemetry.js'
import { type Charge, type Visit, giveBack, policyName, visitOf } from './visit.js'
import { warnInsideRequest } from './warnings.js'

/** What an inline limit counts for. */
export interface Endpoint {
  /** such as `GET /search`; '' where the limit stands in front of all endpoints */
  readonly name: string
  /** what has this name, in this process: another one with the same name is a mistake. null: it cannot be mistaken */
  readonly owner: object | null
}

/** A request and its answer, as the limits see them. */
export interface Exchange extends Sender {
  /** what all places of the request have in common */
  readonly request: object
  readonly method: string
  /** Throws where the framework does not show it. */
  endpoint(): Endpoint
  /** The middleware that the framework calls right behind this place. */
  readonly behind?: () => readonly unknown[]
  /** Each time that a place is asked counts, such as the calls of a resolver in one request of GraphQL. */
  readonly repeats?: boolean
  /** Runs `ended` once when the answer has ended or the client is gone. */
  onEnd(ended: (isAnswered: boolean) => void): void
}

const USUAL_METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']

/** `GET,POST /search`: the methods as declared, none of a route for every method. HEAD is GET without a body. */
export function endpointName(methods: readonly string[], path: string): string {
  const names = new Set(methods.map((method) => (method.toUpperCase() === 'HEAD' ? 'GET' : method.toUpperCase())))
  const isEvery = names.has('ALL') || USUAL_METHODS.every((method) => names.has(method))

  return isEvery ? path : `${[...names].sort().join(',')} ${path}`
}

/** Where a router shows no pattern. */
export function noPattern(what: string): Error {
  return new Error(
    `rateLimit: ${what} shows no pattern of a route here, so a limit with settings of its own has no name to count for. ` +
      "Write one: {limit, window, endpoint: 'NAME'}",
  )
}

/** A browser asks before it sends: for `skip` of a limit in front of the CORS layer. Only if no handler answers OPTIONS. */
export function isPreflightOf(method: string, header: (name: string) => string | undefined): boolean {
  return method === 'OPTIONS' && header('origin') !== undefined && header('access-control-request-method') !== undefined
}

export type Verdict =
  | { readonly passes: true; readonly decision: Decision | null; readonly visit: Visit | null }
  | {
      readonly passes: false
      readonly denial: Denial
      readonly respond: ((denial: Denial) => unknown) | null
      readonly visit: Visit
    }

/** A limit that applies to this request. */
interface Asked<Args extends unknown[]> {
  /** several where the same policy and key is declared twice */
  readonly limits: CompiledLimit<Args>[]
  readonly policy: Policy
  readonly key: Key
  /** policy and key, to compare */
  readonly subject: string
  cost: number
  /** each call counts */
  repeats: boolean
}

/** Does a limit of it wait for the answer? What another one charges in any case is the least that is settled then. */
function isReserved<Args extends unknown[]>({ limits }: Asked<Args>): boolean {
  return limits.some(({ chargeWhen }) => chargeWhen !== undefined)
}

function isSlot<Args extends unknown[]>({ limits }: Asked<Args>): boolean {
  return limits.some(({ slot }) => slot === true)
}

/** A limit of this request has no key. */
class NoKey<Args extends unknown[]> {
  constructor(readonly limit: CompiledLimit<Args>) {}
}

interface Place<Args extends unknown[]> {
  readonly limits: Limits<Args>
  readonly exchangeOf: (...args: Args) => Exchange
}

/** What a middleware asks: limits that stand right behind one another are asked together. */
const placeOf = new WeakMap<object, Place<any>>()

export function standsFor<Args extends unknown[]>(handler: object, place: Place<Args>): void {
  placeOf.set(handler, place)
}

const PASSED = { passes: true, decision: null, visit: null } as const

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
  readonly #moving: readonly CompiledLimit<Args>[]
  readonly #said = new Set<CompiledLimit<Args>>() // that they had no key

  /** Checks everything that can be checked at the start. `once`: how many, from the first, are asked once a request. */
  constructor(
    readonly limiter: RateLimiter,
    inputs: readonly LimitInput<Args>[],
    readonly once = 0,
  ) {
    if (typeof limiter?.checkAll !== 'function')
      throw new TypeError('rateLimit: the first argument is not a RateLimiter')
    if (inputs.length === 0) throw new TypeError('rateLimit: there is no limit')
    this.#limits = inputs.map((input) => compileLimit(input))
    this.#moving = this.#limits.filter(({ moves }) => moves)
    for (const { policy, enabled = true, endpoint, perEndpoint } of this.#limits) {
      if (!enabled) continue
      if (policy !== undefined) limiter.uses(policy)
      if (endpoint !== undefined && perEndpoint !== false && limiter.enabled) limiter.claimEndpoint(endpoint, 'written')
    }
    void limiter.service // is written into the log at the start
  }

  /** Is there a limit that counts for each endpoint, and has no name written? */
  get needsEndpoint(): boolean {
    return this.#limits.some(
      ({ enabled, perEndpoint, endpoint }) => enabled !== false && perEndpoint === true && endpoint === undefined,
    )
  }

  /** Rejects where a limit is a mistake, such as an unknown policy. The framework answers 500 then. */
  async admit(exchange: Exchange, args: Args): Promise<Verdict> {
    if (!this.limiter.enabled) return PASSED
    const visit = visitOf(exchange.request)
    if (visit.asked.delete(this)) return { passes: true, decision: visit.decision, visit } // by the place in front
    const behind = this.#behind(exchange, args)
    const asked = await this.#askedAtAll([{ limits: this, exchange }, ...behind], args, visit)
    if (asked instanceof NoKey) {
      await visit.inTurn(() => this.#giveBack(visit, exchange, []))
      return this.#refused(asked.limit, unavailableRefusal(exchange.header('accept')), null, args, visit)
    }
    if (asked.length === 0) return PASSED

    let delayMs = 0
    const verdict = await visit.inTurn(async () => {
      const taken: Charge[] = []
      try {
        const found = await this.#decide(asked, taken, visit, exchange, args)
        delayMs = found.delayMs
        return found.verdict
      } catch (error) {
        const denying = error instanceof Unavailable ? await this.#denying(error, asked, args) : null
        if (denying) {
          void this.#giveBack(visit, exchange, taken) // the daemon is away: the answer does not wait for it
          return this.#refused(denying, unavailableRefusal(exchange.header('accept')), null, args, visit)
        }
        if (error instanceof Unavailable) {
          for (const charge of taken) visit.add('', charge) // what was taken before belongs to the request
          if (taken.length > 0) visit.watch((ended) => exchange.onEnd(ended))
          return { passes: true, decision: visit.decision, visit } as const
        }
        for (const charge of taken) await giveBack(charge)
        throw error
      }
    })
    if (verdict.passes) for (const { limits } of behind) visit.asked.add(limits)
    if (delayMs > 0) await sleep(delayMs, exchange)
    return verdict
  }

  /** The places that nothing of the application separates from this one. */
  #behind(exchange: Exchange, args: Args): { limits: Limits<Args>; exchange: Exchange }[] {
    const found: { limits: Limits<Args>; exchange: Exchange }[] = []
    for (const handler of exchange.behind?.() ?? []) {
      const place = placeOf.get(handler as object) as Place<Args> | undefined
      if (place === undefined || place.limits.limiter !== this.limiter || place.limits === this) break
      found.push({ limits: place.limits, exchange: place.exchangeOf(...args) })
    }
    return found
  }

  async #askedAtAll(
    places: readonly { limits: Limits<Args>; exchange: Exchange }[],
    args: Args,
    visit: Visit,
  ): Promise<Asked<Args>[] | NoKey<Args>> {
    const asked: Asked<Args>[] = []
    for (const { limits, exchange } of places) {
      const missing = await limits.#addAsked(asked, exchange, args, visit)
      if (missing) return missing
    }
    return asked
  }

  /** The limits that apply, each with its key and cost; equal ones once, with the highest cost. */
  async #addAsked(asked: Asked<Args>[], exchange: Exchange, args: Args, visit: Visit): Promise<NoKey<Args> | null> {
    for (const [i, limit] of this.#limits.entries()) {
      if (limit.enabled === false || (limit.skip && (await limit.skip(...args)))) continue
      const chosen = await limit.policyOf(...args)
      if (chosen === NOT_LIMITED) continue
      if (isNothing(chosen)) {
        if (this.#goesOnWithout('policy', limit, exchange)) continue
        return new NoKey(limit)
      }
      const value = limit.key ? await limit.key(...args) : this.#defaultKey(exchange)
      if (value === NOT_LIMITED) continue
      if (isNoKey(value)) {
        if (this.#goesOnWithout('key', limit, exchange)) continue
        return new NoKey(limit)
      }

      const isOwn = isOfEndpoint(chosen)
      const perEndpoint = limit.perEndpoint ?? isOwn
      const endpoint = perEndpoint ? this.#endpointOf(limit, exchange) : ''
      const key = keyOf(value, perEndpoint && isOwn ? this.limiter.service : '', endpoint)
      const policy = limit.moves ? this.#withId(chosen, limit, endpoint, visit) : chosen
      if (policy !== chosen) await this.limiter.introduced()
      const cost = typeof limit.cost === 'function' ? await limit.cost(...args) : (limit.cost ?? 1)
      const subject = subjectOf(policy, key)
      const repeats = exchange.repeats === true && i >= this.once
      const equal = asked.find((one) => one.subject === subject)
      if (equal) {
        equal.limits.push(limit)
        equal.cost = Math.max(equal.cost, cost)
        equal.repeats ||= repeats
      } else asked.push({ limits: [limit], policy, key, subject, cost, repeats })
    }
    return null
  }

  #endpointOf(limit: CompiledLimit<Args>, exchange: Exchange): string {
    if (limit.endpoint !== undefined) return limit.endpoint
    const { name, owner } = exchange.endpoint()
    if (owner) this.limiter.claimEndpoint(name, owner)

    return name
  }

  /** A limit whose numbers are functions keeps one counter, whatever they are. */
  #withId(policy: Policy, limit: CompiledLimit<Args>, endpoint: string, visit: Visit): Policy {
    const number = visit.firstMoving(this, this.#moving.length) + this.#moving.indexOf(limit)

    return withId(policy, `${endpoint || this.limiter.service || 'every endpoint'}${number > 1 ? `#${number}` : ''}`)
  }

  /** A request without a key is not one without a limit, unless this is written at the limit. */
  #goesOnWithout(what: 'key' | 'policy', limit: CompiledLimit<Args>, exchange: Exchange): boolean {
    const passes = limit.onError === 'allow'
    if (!this.#said.has(limit)) {
      this.#said.add(limit)
      const name = limit.endpoint ?? (nameOf(exchange) || 'every endpoint')
      this.limiter.logger.warn(
        `ratelimitd: no ${what} for a limit of ${name}: ` +
          `${passes ? 'the request goes on without this limit' : 'the request is answered 503'}. NOT_LIMITED is for requests that are not limited`,
      )
    }
    return passes
  }

  async #decide(
    asked: readonly Asked<Args>[],
    taken: Charge[],
    visit: Visit,
    exchange: Exchange,
    args: Args,
  ): Promise<{ verdict: Verdict; delayMs: number }> {
    const before = asked.map(({ subject, repeats }) => visit.chargeOf(subject, repeats))
    const missing = (i: number): number => asked[i]!.cost - (before[i]?.units ?? 0)
    const made = new Map<number, Charge>() // by the place in `asked`
    const denied: { decision: Decision; by: Asked<Args>; reported: Reported[] }[] = []
    let delayMs = 0

    const take = (i: number, decision: Decision, whole: Decision, parts: Partial<Charge>): void => {
      const charge = this.#charge(asked[i]!, decision, whole, parts)
      taken.push(charge)
      made.set(i, charge)
      delayMs = Math.max(delayMs, whole.delayMs)
    }

    for (const [i, one] of asked.entries()) {
      if (denied.length > 0) break
      const { policy, key } = one
      if (isSlot(one) && !before[i]?.slots.length) {
        const { decision, slot } = await this.limiter.tryAcquire(policy, key)
        if (slot) take(i, decision, decision, { units: 1, slots: [slot] })
        else denied.push({ decision, by: one, reported: [this.#reportedOf(one, decision, decision)] })
      } else if (isReserved(one) && (missing(i) > 0 || !before[i]?.reservations.length)) {
        const estimate = Math.max(0, missing(i))
        const { decision, reservation } = await this.limiter.tryReserve(policy, key, estimate)
        if (reservation) take(i, decision, decision, { units: estimate, reservations: [reservation] })
        else denied.push({ decision, by: one, reported: [this.#reportedOf(one, decision, decision)] })
      }
    }

    const plain = [...asked.keys()].filter(
      (i) => !isSlot(asked[i]!) && !isReserved(asked[i]!) && (before[i] === undefined || missing(i) > 0),
    )
    if (denied.length === 0 && plain.length > 0) {
      const members = plain.map((i): Member => [asked[i]!.policy, asked[i]!.key, missing(i)])
      const { whole, each } = await this.#check(members)
      if (whole.allowed)
        for (const [j, i] of plain.entries()) take(i, each[j]!, whole, { units: missing(i), checked: missing(i) })
      else {
        const at = Math.max(
          0,
          each.findIndex(({ allowed }) => !allowed),
        )
        const reported = each.map((decision, j) => this.#reportedOf(asked[plain[j]!]!, decision, whole))
        denied.push({ decision: whole, by: asked[plain[at]!]!, reported })
      }
    }

    if (denied[0]) {
      const { decision, by, reported } = denied[0]
      const own = [...taken]
      await this.#giveBack(visit, exchange, taken)
      visit.deny([...own.map((charge) => charge.reported), ...reported])
      traceDecision(policyName(by.policy, decision), false, decision.source)
      const refusal = deniedRefusal(decision, visit.fields(), exchange.header('accept'))
      return { verdict: this.#refused(by.limits[0]!, refusal, decision, args, visit), delayMs: 0 }
    }

    for (const [i, one] of asked.entries()) this.#keep(one, before[i], made.get(i), visit, args)
    if (taken.some(({ slots, reservations }) => slots.length + reservations.length > 0))
      visit.watch((ended) => exchange.onEnd(ended))
    if (visit.isEnded) void visit.end(false)
    const { decision } = visit
    if (decision) traceDecision(visit.nameOf(decision), true, decision.source)
    return { verdict: { passes: true, decision, visit }, delayMs }
  }

  async #check(members: readonly Member[]): Promise<{ whole: Decision; each: readonly Decision[] }> {
    if (members.length === 1) {
      const [policy, key, cost] = members[0]!
      const decision = await this.limiter.check(policy, key, { cost: cost ?? 1 })
      return { whole: decision, each: [decision] }
    }

    const whole = await this.limiter.checkAll(members)
    return { whole, each: whole.members }
  }

  #reportedOf({ limits }: Asked<Args>, decision: Decision, whole: Decision): Reported {
    const shown = limits.find(({ headers }) => headers !== 'none') ?? limits[0]!
    const { headers = this.limiter.headerOptions.headers, reset = this.limiter.headerOptions.reset } = shown

    return { decision, whole, options: { headers, reset } }
  }

  #charge(one: Asked<Args>, decision: Decision, whole: Decision, parts: Partial<Charge>): Charge {
    const { policy, key, repeats } = one

    return {
      limiter: this.limiter,
      policy,
      key,
      units: 0,
      checked: 0,
      slots: [],
      reservations: [],
      actuals: [],
      isOfCall: repeats,
      ...parts,
      reported: this.#reportedOf(one, decision, whole),
    }
  }

  /** What the request was charged for one limit belongs to it from here on. */
  #keep(one: Asked<Args>, before: Charge | undefined, made: Charge | undefined, visit: Visit, args: Args): void {
    const charge = before ?? made
    if (charge === undefined) return
    if (before === undefined) visit.add(one.subject, charge)
    else if (made !== undefined) {
      charge.units += made.units
      charge.checked += made.checked
      charge.slots.push(...made.slots)
      charge.reservations.push(...made.reservations)
      charge.reported = made.reported
    } else if (charge.reported.options.headers === 'none') {
      charge.reported = this.#reportedOf(one, charge.reported.decision, charge.reported.whole)
    }

    if (isSlot(one)) return
    for (const { chargeWhen } of one.limits)
      charge.actuals.push(async () => (chargeWhen ? unitsOf(await chargeWhen(...args), one.cost) : one.cost))
  }

  /** The request is refused, or the call of a resolver: then other calls of the request go on, and keep what they have. */
  async #giveBack(visit: Visit, exchange: Exchange, taken: readonly Charge[]): Promise<void> {
    await Promise.all(taken.map((charge) => giveBack(charge)))
    if (exchange.repeats !== true) await visit.giveBack()
  }

  /** Without an answer the strictest of the limits decides: the first one that denies, or null. */
  async #denying(error: Unavailable, asked: readonly Asked<Args>[], args: Args): Promise<CompiledLimit<Args> | null> {
    for (const limit of asked.flatMap(({ limits }) => limits)) {
      const rule = limit.onError ?? (this.limiter.onError as OnError<Args>)
      const choice = typeof rule === 'function' ? await rule(error, ...args) : rule
      if (choice !== 'allow') {
        this.limiter.withoutAnswer(error, false)
        return limit
      }
    }

    this.limiter.withoutAnswer(error, true)
    return null
  }

  #refused(
    { respond }: CompiledLimit<Args>,
    refusal: Refusal,
    decision: Decision | null,
    args: Args,
    visit: Visit,
  ): Verdict {
    return {
      passes: false,
      denial: { ...refusal, decision },
      respond: respond ? (denial) => respond(...args, denial) : null,
      visit,
    }
  }
}

/** The fields that the answer gets, of this place and of those before it. */
export function fieldsOf(verdict: Verdict): readonly Field[] {
  return verdict.passes ? (verdict.visit?.fields() ?? []) : verdict.denial.fields
}

/** For the log: a name that may be missing. */
function nameOf(exchange: Exchange): string {
  try {
    return exchange.endpoint().name
  } catch {
    return ''
  }
}

/** What chargeWhen gave: whether it counts, or how many units. */
function unitsOf(given: unknown, cost: number): number {
  if (typeof given !== 'number' && typeof given !== 'bigint') return given ? cost : 0
  const units = Number(given)
  if (!Number.isSafeInteger(units) || units < 0)
    throw new TypeError(`rateLimit: chargeWhen gave ${given}, which is not a whole number from 0`)

  return units
}

function isNothing(value: unknown): value is null | undefined | '' {
  return value === undefined || value === null || value === ''
}

function isNoKey(value: KeyValue): value is null | undefined | '' {
  if (value instanceof Uint8Array) return value.length === 0
  if (Array.isArray(value)) return value.length === 0 || value.some(isNothing)

  return isNothing(value)
}

const TIMER_MAX_MS = 2 ** 31 - 1

/** Of a client that left in the meantime it never ends: the request does not go on. */
async function sleep(ms: number, exchange: Exchange): Promise<void> {
  let isGone = false
  let timer: NodeJS.Timeout | undefined
  exchange.onEnd(() => {
    isGone = true
    clearTimeout(timer)
  })

  for (const until = performance.now() + ms; !isGone && performance.now() < until;) {
    const rest = Math.min(until - performance.now(), TIMER_MAX_MS)
    await new Promise((resolve) => (timer = setTimeout(resolve, Math.ceil(rest))))
  }
}

/** `SERVICE|ENDPOINT|KEY`; what is empty is left out. */
export function keyOf(value: KeyValue, service: string, endpoint: string): Key {
  if (value === NOT_LIMITED || isNoKey(value)) throw new TypeError('rateLimit: the key is empty')

  const front = [service, endpoint].filter((part) => part !== '')
  if (value instanceof Uint8Array)
    return front.length === 0 ? value : Buffer.concat([Buffer.from(`${joinKey(...front)}|`), value])

  const key = typeof value === 'object' ? joinKey(...(value as readonly KeyPart[])) : String(value)
  return front.length === 0 ? key : `${joinKey(...front)}|${key}`
}
