/*
 * What the daemon decided, and how an answer becomes that. Times are whole milliseconds from now.
 */

export interface Decision {
  readonly allowed: boolean
  /** the capacity: the limit, or the burst of a bucket; 2^53 - 1 of an unlimited policy */
  readonly limit: number
  /** units that could be charged now */
  readonly remaining: number
  /** 0 when allowed; else the time after which the same cost is allowed; null: never */
  readonly retryAfterMs: number | null
  /** until everything is available again, without further charges */
  readonly resetAfterMs: number
  /** when allowed: wait this long before going ahead (leaky_bucket with max_wait) */
  readonly delayMs: number
  /** units charged */
  readonly granted: number
  /** with several limits, the one that denied: `policy/limit` */
  readonly boundBy: string | null
  /** who decided: `redis`, `memory`, `deny_cache`, `unlimited`, or the failure answers `allow`, `deny`, `local` */
  readonly source: string
  /** of a failure answer: why the store did not decide */
  readonly reason: string | null
  /** fingerprint of the policy's settings */
  readonly policyVersion: number
  /** a shadow policy allowed what it would have denied */
  readonly shadowDenied: boolean
  /** more than the policy's `warn_at` is used */
  readonly near: boolean
  /** the limit that `limit` and `remaining` speak of: `policy/limit`, or `policy`; null: no limit counted, or an old daemon */
  readonly of: string | null
  /** the `limit` setting of that limit */
  readonly quota: number | null
  /** its window; 0 of a concurrency limit */
  readonly windowMs: number | null
  /** when that limit alone is unused again */
  readonly ofResetMs: number | null
}

/** Of `checkAll`: the combined decision. */
export interface CombinedDecision extends Decision {
  /** each member's own decision, in the same order */
  readonly members: readonly Decision[]
}

/** Of `refund`, `settle` and `cancel`: the state afterwards. */
export interface Correction extends Decision {
  /** units given back */
  readonly refunded: number
  /** units charged beyond the estimate */
  readonly charged: number
  /** the reservation had ended before */
  readonly ended: boolean
}

/** Of `explain`. The maps are the daemon's own, with its names. */
export interface Explanation extends Decision {
  readonly policy: string
  readonly override: string | null
  readonly why: string
  readonly limits: readonly Record<string, unknown>[]
  readonly storeKeys: readonly (string | Uint8Array)[]
  readonly state: readonly Record<string, unknown>[]
  readonly candidate: Record<string, unknown> | null
}

/** An answer that is not what the protocol promises. */
export class InvalidAnswer extends Error {
  override readonly name = 'InvalidAnswer'
}

export type Fields = Record<string, unknown>

export function fieldsOf(value: unknown): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value) || value instanceof Uint8Array)
    throw new InvalidAnswer('the answer is not a map')

  return value as Fields
}

export function arrayOf(value: unknown): unknown[] {
  if (!Array.isArray(value)) throw new InvalidAnswer('the answer is not an array')

  return value
}

function integer<Absent>(fields: Fields, name: string, absent: Absent): number | Absent {
  const value = fields[name]
  if (value === undefined || value === null) return absent
  const least = name === 'retry_after_ms' ? -1 : 0
  if (!Number.isSafeInteger(value) || (value as number) < least)
    throw new InvalidAnswer(`${name} is not an integer from ${least} to 2^53 - 1`)

  return value as number
}

function needed(fields: Fields, name: string): number {
  const value = integer(fields, name, null)
  if (value === null) throw new InvalidAnswer(`${name} is missing`)

  return value
}

export function text(fields: Fields, name: string): string | null {
  const value = fields[name]
  if (value === undefined || value === null) return null
  const words = textOf(value)
  if (words === null) throw new InvalidAnswer(`${name} is not a text`)

  return words
}

/** The daemon writes as bytes what echoes bytes. */
export function textOf(value: unknown): string | null {
  if (value instanceof Uint8Array) return Buffer.from(value).toString()

  return typeof value === 'string' ? value : null
}

export function flag(fields: Fields, name: string): boolean {
  const value = fields[name]
  if (value === undefined || value === null) return false
  if (typeof value !== 'boolean') throw new InvalidAnswer(`${name} is not true or false`)

  return value
}

/** `cost`: what `granted` is when the daemon leaves it out and allows. Throws InvalidAnswer. */
export function decisionOf(value: unknown, cost: number): Decision {
  const fields = fieldsOf(value)
  const allowed = fields['allowed']
  if (typeof allowed !== 'boolean') throw new InvalidAnswer('allowed is missing, or not true or false')
  const retryAfterMs = needed(fields, 'retry_after_ms')
  const source = text(fields, 'source')
  if (source === null) throw new InvalidAnswer('source is missing')

  return {
    allowed,
    limit: needed(fields, 'limit'),
    remaining: needed(fields, 'remaining'),
    retryAfterMs: retryAfterMs < 0 ? null : retryAfterMs,
    resetAfterMs: needed(fields, 'reset_after_ms'),
    delayMs: integer(fields, 'delay_ms', 0),
    granted: integer(fields, 'granted', allowed ? cost : 0),
    boundBy: text(fields, 'bound_by'),
    source,
    reason: text(fields, 'reason'),
    policyVersion: integer(fields, 'policy_version', 0),
    shadowDenied: flag(fields, 'shadow_denied'),
    near: flag(fields, 'near'),
    of: text(fields, 'of'),
    quota: integer(fields, 'quota', null),
    windowMs: integer(fields, 'window_ms', null),
    ofResetMs: integer(fields, 'of_reset_ms', null),
  }
}

/** The slot or the reservation that comes with a yes; null with a no. */
export function idOf(value: unknown, name: string, decision: Decision): string | null {
  if (!decision.allowed) return null
  const id = text(fieldsOf(value), name)
  if (id === null || id === '') throw new InvalidAnswer(`${name} is missing`)

  return id
}

/** `costs`: of the members, in order. */
export function decisionsOf(value: unknown, costs: readonly number[]): Decision[] {
  const answers = arrayOf(value)
  if (answers.length !== costs.length) throw new InvalidAnswer('there are not as many decisions as checks')

  return answers.map((answer, i) => decisionOf(answer, costs[i]!))
}

export function combinedOf(value: unknown, costs: readonly number[]): CombinedDecision {
  const sum = costs.reduce((total, cost) => total + cost, 0)

  return { ...decisionOf(value, sum), members: decisionsOf(fieldsOf(value)['members'], costs) }
}

export function correctionOf(value: unknown): Correction {
  const fields = fieldsOf(value)

  return {
    ...decisionOf(value, 0),
    refunded: integer(fields, 'refunded', 0),
    charged: integer(fields, 'charged', 0),
    ended: flag(fields, 'ended'),
  }
}

export function explanationOf(value: unknown, cost: number): Explanation {
  const fields = fieldsOf(value)
  const candidate = fields['candidate']

  return {
    ...decisionOf(value, cost),
    policy: text(fields, 'policy') ?? '',
    override: text(fields, 'override'),
    why: text(fields, 'why') ?? '',
    limits: arrayOf(fields['limits']).map(fieldsOf),
    // the bytes of an answer are reused: keep copies
    storeKeys: arrayOf(fields['store_keys']).map((key) =>
      key instanceof Uint8Array ? new Uint8Array(key) : String(key),
    ),
    state: arrayOf(fields['state']).map(fieldsOf),
    candidate: candidate === undefined || candidate === null ? null : fieldsOf(candidate),
  }
}
