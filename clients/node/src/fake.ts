/*
 * Answers without a daemon: everything is allowed, except what the test denies. For tests, and for RATELIMIT_ENABLED=0.
 */
import type { CallOptions, Transport } from './connection.js'
import { Unavailable, type UnavailableKind } from './errors.js'

/** [method, policy, key, cost]; of acquire without a cost; each member of checkAll and checkMany is a call of its own. */
export type FakeCall = readonly [method: string, policy: unknown, key: unknown, cost?: number]

const MAYBE_CHARGED: readonly UnavailableKind[] = ['timeout', 'lost', 'protocol', 'store_unavailable']
const UNLIMITED = 2 ** 53 - 1

export class FakeTransport implements Transport {
  readonly calls: FakeCall[] = []
  readonly denials = new Map<string, number>() // policy to retry_after_ms; -1: never
  unavailable: UnavailableKind | null = null
  readonly pending = 0
  readonly isIntroduced = true
  readonly features: ReadonlySet<string> = new Set(['name', 'reserve_inline', 'abandon'])
  readonly #records: boolean
  #isClosed = false
  #lastId = 0

  /** `records`: whether it remembers what it was asked. */
  constructor({ records }: { records: boolean }) {
    this.#records = records
  }

  hold(): () => void {
    return () => {}
  }

  close(): void {
    this.#isClosed = true
  }

  async call<Result>(method: string, params: readonly unknown[], options: CallOptions<Result>): Promise<Result> {
    if (options.signal?.aborted) throw options.signal.reason
    if (this.#isClosed) throw new Unavailable('unreachable', false, 'the limiter is closed')
    if (this.#records) this.#record(method, params)
    if (this.unavailable !== null)
      throw new Unavailable(
        this.unavailable,
        MAYBE_CHARGED.includes(this.unavailable),
        'the fake limiter is set to be unavailable',
      )

    return options.read(this.#answer(method, params))
  }

  #record(method: string, params: readonly unknown[]): void {
    const [policy, key, amount] = params
    switch (method) {
      case 'check':
        this.calls.push([method, policy, key, costOf(amount)])
        break
      case 'acquire':
        this.calls.push([method, policy, key])
        break
      case 'check_all':
      case 'check_many':
        for (const [name, of, cost] of policy as [unknown, unknown, unknown][])
          this.calls.push([method, name, of, costOf(cost)])
        break
      case 'reserve':
      case 'refund':
      case 'peek':
      case 'reset':
        this.calls.push(amount === undefined ? [method, policy, key] : [method, policy, key, amount as number])
    }
  }

  #answer(method: string, params: readonly unknown[]): unknown {
    const [policy] = params
    switch (method) {
      case 'check':
      case 'peek':
      case 'explain':
      case 'refund':
      case 'settle':
      case 'cancel':
        return { ...this.#decision(policy), limits: [], store_keys: [], state: [] }
      case 'acquire':
        return this.#given('slot', policy)
      case 'reserve':
        return this.#given('reservation', policy)
      case 'check_many':
        return (policy as unknown[][]).map(([name]) => this.#decision(name))
      case 'check_all': {
        const members = (policy as unknown[][]).map(([name]) => this.#decision(name))
        const denied = members.find((member) => !member['allowed'])
        return { ...(denied ? { ...denied, bound_by: denied['of'] } : members[0]), members }
      }
      case 'reset':
        return { removed: true }
      case 'release':
        return { released: true }
      case 'policies':
        return []
      default:
        return {}
    }
  }

  #given(what: string, policy: unknown): Record<string, unknown> {
    const decision = this.#decision(policy)

    return decision['allowed'] ? { ...decision, [what]: `fake${++this.#lastId}` } : decision
  }

  #decision(policy: unknown): Record<string, unknown> {
    const retryAfterMs = typeof policy === 'string' ? this.denials.get(policy) : undefined
    if (retryAfterMs === undefined)
      return {
        allowed: true,
        limit: UNLIMITED,
        remaining: UNLIMITED,
        retry_after_ms: 0,
        reset_after_ms: 0,
        source: 'unlimited',
        policy_version: 0,
      }

    const resetMs = Math.max(0, retryAfterMs)
    return {
      allowed: false,
      limit: 1,
      remaining: 0,
      retry_after_ms: retryAfterMs,
      reset_after_ms: resetMs,
      source: 'memory',
      policy_version: 0,
      of: policy,
      quota: 1,
      window_ms: Math.max(1000, resetMs),
      of_reset_ms: resetMs,
    }
  }
}

function costOf(amount: unknown): number {
  if (typeof amount === 'number') return amount
  const { cost, at_most: atMost } = (amount ?? {}) as { cost?: number; at_most?: number }

  return cost ?? atMost ?? 1
}
