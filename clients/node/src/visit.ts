/*
 * What the limits of one request have in common, wherever they are asked: what was charged for it, what it holds, and the
 * fields of its answer. It is kept by the request of node:http, so the adapters of several frameworks meet in it.
 *
 * A policy and key is charged once a request. If a later place refuses the request, everything goes back that earlier
 * places charged.
 */
import type { Decision } from './decision.js'
import { Refused, Unavailable } from './errors.js'
import type { Reservation, Slot } from './holds.js'
import { type Field, type Reported, fieldsFor } from './http.js'
import type { Key, Policy, RateLimiter } from './limiter.js'
import { nameIn } from './policies.js'

/** How many units a request costs in the end, of those that were reserved for it; asked when it has ended. */
export type Actual = () => Promise<number>

/** One policy and key that a request was charged for. */
export interface Charge {
  readonly limiter: RateLimiter
  readonly policy: Policy
  readonly key: Key
  units: number
  /** what of `units` was checked, and not reserved */
  checked: number
  readonly slots: Slot[]
  readonly reservations: Reservation[]
  /** of the limits that reserved */
  readonly actuals: Actual[]
  /** what its field reports */
  reported: Reported
  /** a call of a resolver has it: another call gets one of its own */
  isOfCall: boolean
}

const visits = new WeakMap<object, Visit>()

/** Of a request: the same in every place where it is limited. */
export function visitOf(request: object): Visit {
  const known = visits.get(request)
  if (known) return known

  const visit = new Visit()
  visits.set(request, visit)
  return visit
}

export class Visit {
  /** by policy and key; several where each call of a request counts, as those of resolvers of GraphQL do */
  readonly #charges = new Map<string, Charge[]>()
  readonly #firstMoving = new Map<object, number>()
  #moving = 0
  #isWatched = false
  #isEnded = false
  #last: Promise<void> | null = null
  readonly #givenBack: Reported[] = []
  #denied: readonly Reported[] = []
  /** places whose limits were asked together with those in front of them */
  readonly asked = new Set<object>()
  /** what the places of this request have written into each field so far */
  readonly written = new Map<string, string>()

  /** Places of one request may ask at the same time: one after another, so that each sees what the others charged. */
  async inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    const before = this.#last
    let next!: () => void
    this.#last = new Promise((resolve) => (next = resolve))
    if (before) await before
    try {
      return await work()
    } finally {
      next()
    }
  }

  /** The first number, from 1, of the limits of this place whose numbers are functions. */
  firstMoving(place: object, count: number): number {
    const known = this.#firstMoving.get(place)
    if (known !== undefined) return known

    const first = this.#moving + 1
    this.#moving += count
    this.#firstMoving.set(place, first)
    return first
  }

  /** What the request was charged for this before. `repeats`: the call asks for a charge that no other call has. */
  chargeOf(subject: string, repeats: boolean): Charge | undefined {
    const charges = this.#charges.get(subject) ?? []
    if (!repeats) return charges[0]

    const free = charges.find(({ isOfCall }) => !isOfCall)
    if (free) free.isOfCall = true
    return free
  }

  add(subject: string, charge: Charge): void {
    const charges = this.#charges.get(subject)
    if (charges) charges.push(charge)
    else this.#charges.set(subject, [charge])
  }

  /** What was taken is given back when the request has ended, even if it ends before this is called. */
  watch(onEnd: (ended: (isAnswered: boolean) => void) => void): void {
    if (this.#isWatched) return
    this.#isWatched = true
    onEnd((isAnswered) => void this.end(isAnswered))
  }

  get isEnded(): boolean {
    return this.#isEnded
  }

  /** A request whose client left before its answer may have done its work: it counts. */
  async end(isAnswered: boolean): Promise<void> {
    this.#isEnded = true
    for (const charge of this.#all()) {
      for (const slot of charge.slots.splice(0)) void slot.release()
      if (charge.reservations.length > 0) await settle(charge, isAnswered)
    }
  }

  /** The request is refused: nothing stays charged, except where denials count. */
  async giveBack(): Promise<void> {
    const charges = [...this.#all()]
    this.#charges.clear()
    await Promise.all(charges.map((charge) => giveBack(charge)))
    this.#givenBack.push(...charges.map(({ reported }) => reported))
  }

  /** What refused the request: the answer reports it behind what was decided before. */
  deny(reported: readonly Reported[]): void {
    this.#denied = reported
  }

  #all(): Charge[] {
    return [...this.#charges.values()].flat()
  }

  /** Everything that was decided for this request; each limit once. */
  #reported(): Reported[] {
    const found: Reported[] = []
    for (const one of [...this.#givenBack, ...this.#all().map(({ reported }) => reported), ...this.#denied]) {
      const at = found.findIndex(({ decision: { of } }) => of !== null && of === one.decision.of)
      if (at < 0) found.push(one)
      else if (isStricter(one.decision, found[at]!.decision)) found[at] = one
    }
    return found
  }

  /** The fields of the answer. */
  fields(): Field[] {
    const reported = this.#reported()

    return fieldsFor(reported, Date.now(), this.#denied.length > 0 ? this.#denied : [...reported].reverse())
  }

  /** For the handler: of several limits the one with least left; null: no decision was made. */
  get decision(): Decision | null {
    return this.#reported().reduce<Decision | null>(
      (least, { decision }) => (least !== null && least.remaining <= decision.remaining ? least : decision),
      null,
    )
  }

  /** The policy of the decision for the handler. */
  nameOf(decision: Decision): string {
    const charge = this.#all().find(({ reported }) => reported.decision === decision)

    return charge ? policyName(charge.policy, decision) : ''
  }
}

/** A policy's name; of settings that are written in the program theirs, or the one that the daemon made. */
export function policyName(policy: Policy, decision: Decision): string {
  return typeof policy === 'string' ? policy : (nameIn(policy) ?? decision.of?.split('/')[0] ?? '')
}

function isStricter(one: Decision, other: Decision): boolean {
  return one.allowed === other.allowed ? one.remaining < other.remaining : !one.allowed
}

/** The request has ended: the reservations become what it cost. */
async function settle(charge: Charge, isAnswered: boolean): Promise<void> {
  const reservations = charge.reservations.splice(0)
  const reserved = reservations.reduce((sum, { estimate }) => sum + estimate, 0)
  let left = reserved
  try {
    const actuals = isAnswered ? await Promise.all(charge.actuals.map((actual) => actual())) : [reserved]
    left = Math.max(0, Math.max(...actuals) - charge.checked)
  } catch (error) {
    failed(charge.limiter, error) // what it cost is not known: it counts as it was reserved
  }

  for (const [i, reservation] of reservations.entries()) {
    const isLast = i === reservations.length - 1
    const units = isLast ? left : Math.min(left, reservation.estimate)
    left -= units
    try {
      const { charged, source } = await (units > 0 ? reservation.settle(units) : reservation.cancel())
      if (units - reservation.estimate > charged && !isFailureAnswer(source)) charge.limiter.chargedLess(charge.policy)
    } catch (error) {
      failed(charge.limiter, error)
    }
  }
}

/** The request is refused: reservations are cancelled, slots released, and units given back. */
export async function giveBack(charge: Charge): Promise<void> {
  for (const slot of charge.slots.splice(0)) await slot.release()
  for (const reservation of charge.reservations.splice(0))
    await reservation.cancel().then(
      (after) => report(charge, after),
      (error: unknown) => failed(charge.limiter, error),
    )
  if (charge.checked === 0 || isFailureAnswer(charge.reported.decision.source)) return

  const { policyVersion } = charge.reported.decision
  try {
    if (!(await charge.limiter.givesBack(charge.policy, policyVersion))) return
    report(charge, await charge.limiter.refund(charge.policy, charge.key, charge.checked))
  } catch (error) {
    if (error instanceof Refused) charge.limiter.keepsCharges(charge.policy, policyVersion, error)
    else if (!(error instanceof Unavailable)) failed(charge.limiter, error)
  }
}

function report(charge: Charge, after: Decision): void {
  if (after.of !== null) charge.reported = { ...charge.reported, decision: after, whole: after }
}

/** The store did not decide: nothing was charged there. */
function isFailureAnswer(source: string): boolean {
  return source === 'allow' || source === 'deny' || source === 'local' || source === 'unlimited'
}

function failed(limiter: RateLimiter, error: unknown): void {
  limiter.logger.warn(
    `ratelimitd: what a request was charged was not corrected: ${error instanceof Error ? error.message : String(error)}`,
  )
}
