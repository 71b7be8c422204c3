/*
 * How a call can fail. A denial is none of these: it is a Decision. Only `acquire`, `reserve` and the `with...` helpers,
 * whose caller goes on without looking, throw `Denied`.
 *
 * The package exists twice in a program that both imports and requires it, so `instanceof` looks at the name.
 */
import type { Decision } from './decision.js'

/** Why there is no answer. */
export type UnavailableKind =
  /** no daemon, its backlog is full, or the client waits before it connects again; never sent */
  | 'unreachable'
  /** no answer in time */
  | 'timeout'
  /** the connection ended after the request was sent */
  | 'lost'
  /** the answer is not valid */
  | 'protocol'
  /** the daemon refuses because of its load; nothing was charged */
  | 'overloaded'
  /** the daemon is stopping; nothing was charged */
  | 'shutting_down'
  /** only the store could have answered, and it did not */
  | 'store_unavailable'
  /** not tried: the last three calls timed out */
  | 'breaker'

function isNamed(value: unknown, name: string): boolean {
  return value instanceof Error && value.name === name
}

/** No decision was made. The program goes on by its own rule. */
export class Unavailable extends Error {
  override readonly name = 'Unavailable'

  constructor(
    readonly kind: UnavailableKind,
    /** whether the call may have been charged all the same */
    readonly maybeCharged: boolean,
    message: string,
    /** the daemon's code, if it sent one */
    readonly code: string | null = null,
  ) {
    super(message)
  }

  static override [Symbol.hasInstance](value: unknown): boolean {
    return isNamed(value, 'Unavailable')
  }
}

/** The daemon refuses the request: a mistake in the program or in the configuration. Nothing was charged. */
export class Refused extends Error {
  override readonly name = 'Refused'

  constructor(
    /** `UNKNOWN_POLICY`, `BAD_KEY` ... */
    readonly code: string,
    message: string,
    /** of `verify`: the policies that are not configured */
    readonly missing: readonly string[] = [],
  ) {
    super(message)
  }

  static override [Symbol.hasInstance](value: unknown): boolean {
    return isNamed(value, 'Refused')
  }
}

/** What `acquire`, `reserve`, `withSlot` and `withReservation` throw when the answer is no. */
export class Denied extends Error {
  override readonly name = 'Denied'

  constructor(
    readonly decision: Decision,
    message: string,
  ) {
    super(message)
  }

  static override [Symbol.hasInstance](value: unknown): boolean {
    return isNamed(value, 'Denied')
  }
}

/** The caller's AbortSignal ended the call. `cause` is the signal's reason. */
export class Aborted extends Error {
  override readonly name = 'AbortError'
  readonly code = 'ABORT_ERR'

  constructor(
    /** whether the request was sent before */
    readonly maybeCharged: boolean,
    cause: unknown,
  ) {
    super('the call was aborted', { cause })
  }
}
