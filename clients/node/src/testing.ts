/*
 * For the tests of programs that use a limiter: one that needs no daemon, and a real daemon whose time stands still.
 *
 *     const limiter = new FakeLimiter()
 *     limiter.deny('login', { retryAfterMs: 3000 })
 *
 *     const daemon = await startDaemon({ policies: { login: { algorithm: 'fixed_window', limit: 5, window: '10s' } } })
 *     const limiter = new RateLimiter({ socket: daemon.socket })
 *     await daemon.advance('10s')
 *     await daemon.stop()
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { UnavailableKind } from './errors.js'
import { type FakeCall, FakeTransport } from './fake.js'
import { type LimiterOptions, RateLimiter } from './limiter.js'
import { checkOptions } from './options.js'

export type { FakeCall } from './fake.js'

/** Allows everything, except what it is set to deny, and remembers what it was asked. */
export class FakeLimiter extends RateLimiter {
  readonly #fake: FakeTransport

  constructor(options: Omit<LimiterOptions, 'socket' | 'timeoutMs'> = {}) {
    const fake = new FakeTransport({ records: true })
    super({ enabled: true, ...options }, fake)
    this.#fake = fake
  }

  /** As at the beginning; the calls are kept. */
  allowAll(): void {
    this.#fake.denials.clear()
    this.#fake.unavailable = null
  }

  /** From now on the policy denies, whatever the key. Without retryAfterMs: never. */
  deny(policy: string, options: { readonly retryAfterMs?: number | undefined } = {}): void {
    checkOptions('deny', options, ['retryAfterMs'])
    this.#fake.denials.set(policy, options.retryAfterMs ?? -1)
  }

  /** From now on there is no answer. */
  unavailable(kind: UnavailableKind = 'unreachable'): void {
    this.#fake.unavailable = kind
  }

  /** What was asked, in order: ['check', 'login', 'alice', 1] */
  get calls(): readonly FakeCall[] {
    return this.#fake.calls
  }

  /** Every policy exists. */
  override async verify(): Promise<void> {}
}

export interface DaemonOptions {
  /** as in ratelimitd.yaml(5) */
  readonly policies: Readonly<Record<string, unknown>>
  /** other sections, such as {inline: {allow: true}} */
  readonly settings?: Readonly<Record<string, unknown>> | undefined
  /** the program; default: ratelimitd in the PATH */
  readonly program?: string | undefined
}

const UNITS_US: Readonly<Record<string, number>> = { ms: 1e3, s: 1e6, m: 60e6, h: 3600e6, d: 86400e6 }
const START_US = 1_800_000_000_000_000

/** A daemon on its memory store, on a socket of its own. Its limits' time moves only by advance(). */
export class Daemon {
  readonly socket: string
  readonly #folder: string
  readonly #process: ChildProcess
  readonly #clock: RateLimiter
  #nowUs = START_US

  /** @internal */
  constructor(folder: string, socket: string, process: ChildProcess) {
    this.#folder = folder
    this.socket = socket
    this.#process = process
    this.#clock = new RateLimiter({ socket, enabled: true, timeoutMs: 5000 })
  }

  /** Moves the time of the limits: '500ms', '10s', '1h', or milliseconds. */
  async advance(time: string | number): Promise<void> {
    const [, count, unit] = /^(\d+)(ms|s|m|h|d)$/.exec(typeof time === 'number' ? `${time}ms` : time) ?? []
    if (count === undefined) throw new TypeError(`not a time: ${time}`)

    this.#nowUs += Number(count) * UNITS_US[unit!]!
    await this.#clock.call('test_clock', [this.#nowUs])
  }

  /** Every limit of every key is unused again: goes on by a thousand days. Slots that are held stay. */
  async resetAll(): Promise<void> {
    await this.advance('1000d')
  }

  async stop(): Promise<void> {
    this.#clock.close()
    const { exitCode, signalCode } = this.#process
    if (exitCode === null && signalCode === null) {
      const ended = new Promise((resolve) => this.#process.once('exit', resolve))
      this.#process.kill('SIGTERM')
      await ended
    }
    await rm(this.#folder, { recursive: true, force: true })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop()
  }
}

/** Rejects with the daemon's output when it does not start. */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  checkOptions('startDaemon', options, ['policies', 'settings', 'program'])
  const folder = await mkdtemp(join(tmpdir(), 'ratelimitd-'))
  const socket = join(folder, 'socket')
  const config = join(folder, 'ratelimitd.yaml')
  await writeFile(config, JSON.stringify({ ...options.settings, policies: options.policies })) // JSON is YAML

  const process = spawn(options.program ?? 'ratelimitd', ['-c', config, '-s', socket, '--test-clock'], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let output = ''
  process.stderr!.on('data', (data: Buffer) => (output = (output + data.toString()).slice(-4096)))
  const failed = new Promise<never>((_resolve, reject) => {
    process.once('error', reject)
    process.once('exit', (code) => reject(new Error(`ratelimitd ended with status ${code}: ${output}`)))
  })
  failed.catch(() => {})

  const daemon = new Daemon(folder, socket, process)
  try {
    await Promise.race([answers(socket), failed])
    await daemon.advance(0)
  } catch (error) {
    await daemon.stop()
    throw error
  }
  return daemon
}

async function answers(socket: string): Promise<void> {
  const probe = new RateLimiter({ socket, enabled: true })
  try {
    for (let attempt = 0; attempt < 500; attempt++) {
      const isThere = await probe.ping().then(
        () => true,
        () => false,
      )
      if (isThere) return
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
    throw new Error('ratelimitd does not answer')
  } finally {
    probe.close()
  }
}
