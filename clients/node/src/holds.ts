/*
 * What a limiter gives out and gets back: slots of concurrency limits, and reservations.
 */
import type { Correction, Decision } from './decision.js'

/** A slot belongs to the process's connection: it ends with release(), with the process, or when the connection ends. */
export class Slot {
  #isReleased = false
  #isLost = false
  readonly #release: () => Promise<boolean>
  readonly #letGo: () => void

  /** @internal */
  constructor(
    readonly decision: Decision,
    parts: { release: () => Promise<boolean>; hold: (onLost: () => void) => () => void; onLost: (slot: Slot) => void },
  ) {
    this.#release = parts.release
    this.#letGo = parts.hold(() => {
      this.#isLost = true
      parts.onLost(this)
    })
  }

  /** The connection ended before the release: the daemon has given the slot to others. */
  get lost(): boolean {
    return this.#isLost
  }

  get held(): boolean {
    return !this.#isLost && !this.#isReleased
  }

  /**
   * Gives the slot back. True: the daemon freed it. False: it was released or lost before, or the daemon did not confirm it
   * in time (it frees the slot when it reads the request, or at the end of the connection). Never rejects.
   */
  async release(): Promise<boolean> {
    if (!this.held) return false
    this.#isReleased = true
    this.#letGo()

    return this.#release().catch(() => false)
  }

  /** @internal No caller waits for it any more: the connection gives it back by itself. */
  disown(): void {
    this.#isReleased = true
    this.#letGo()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release()
  }
}

/** Units that were charged before their number was known. Any process may settle them. */
export class Reservation {
  #isSettled = false
  readonly #settle: (actual: number) => Promise<Correction>
  readonly #cancel: () => Promise<Correction>

  /** @internal */
  constructor(
    /** the token */
    readonly id: string,
    readonly decision: Decision,
    /** the units that were reserved */
    readonly estimate: number,
    parts: { settle: (actual: number) => Promise<Correction>; cancel: () => Promise<Correction> },
  ) {
    this.#settle = parts.settle
    this.#cancel = parts.cancel
  }

  /** `settle` or `cancel` was called. */
  get settled(): boolean {
    return this.#isSettled
  }

  /** Corrects the charge to what was used; without a number the estimate stands. */
  settle(actual: number = this.estimate): Promise<Correction> {
    this.#isSettled = true

    return this.#settle(actual)
  }

  /** Nothing was used. */
  cancel(): Promise<Correction> {
    this.#isSettled = true

    return this.#cancel()
  }

  /** Leaving an `await using` block without settle() cancels. A failure leaves the units until the time limit. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#isSettled) await this.cancel().catch(() => {})
  }
}
