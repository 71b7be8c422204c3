/*
 * Denials that are remembered for a short time, so that a flood of one process does not reach the daemon.
 */
import type { CombinedDecision, Decision } from './decision.js'

const DENIALS_MAX = 1024

interface Denial {
  readonly decision: Decision
  readonly subjects: readonly string[]
  readonly sinceMs: number
  readonly untilMs: number
}

export class RememberedDenials {
  readonly #denials = new Map<string, Denial>() // the oldest first

  constructor(readonly forMs: number) {}

  /** The denial of this question, as of now; null: ask the daemon. */
  find(question: string): Decision | null {
    const denial = this.#denials.get(question)
    if (denial === undefined) return null

    const nowMs = performance.now()
    if (nowMs < denial.untilMs) return aged(denial.decision, Math.floor(nowMs - denial.sinceMs))
    this.#denials.delete(question)
    return null
  }

  /** `subjects`: whose reset or refund ends the denial. `sinceMs`: before the question was sent. */
  keep(question: string, subjects: readonly string[], decision: Decision, sinceMs: number): void {
    if (decision.allowed || decision.source === 'deny') return

    const forMs = Math.min(this.forMs, decision.retryAfterMs ?? Infinity)
    this.#denials.delete(question)
    if (this.#denials.size >= DENIALS_MAX) this.#denials.delete(this.#denials.keys().next().value!)
    this.#denials.set(question, { decision, subjects, sinceMs, untilMs: sinceMs + forMs })
  }

  forget(subject: string): void {
    for (const [question, { subjects }] of this.#denials) if (subjects.includes(subject)) this.#denials.delete(question)
  }
}

/** The decision some time later. Of a checkAll those members change that denied. */
function aged<D extends Decision | CombinedDecision>(decision: D, ms: number): D {
  const later = {
    ...decision,
    source: 'deny_cache',
    retryAfterMs: decision.retryAfterMs === null ? null : Math.max(1, decision.retryAfterMs - ms),
    resetAfterMs: Math.max(0, decision.resetAfterMs - ms),
    ofResetMs: decision.ofResetMs === null ? null : Math.max(0, decision.ofResetMs - ms),
  }

  return 'members' in decision
    ? { ...later, members: decision.members.map((member) => (member.allowed ? member : aged(member, ms))) }
    : later
}
