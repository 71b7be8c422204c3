/*
 * The one connection of a limiter, shared by all calls of the process.
 *
 *     call() -> #fresh -> (the loop's next iteration: a timer each) -> #unsent -> one write -> #sent -> answer
 *
 * It connects when a call needs it. Calls of one iteration of the loop leave in one write; while the kernel does not take
 * them they stay in #unsent, so the client knows what has never left: only that goes out again on a new connection, and
 * what has a request id. A socket with nothing pending does not keep the process alive.
 *
 * Late answers: a timer that fires late because the program blocked the loop first lets the loop read (setImmediate).
 * The time in which the program blocks the loop right after its call does not count either: timers start when the calls
 * are sent. A late yes to an acquire is released, to a reserve cancelled.
 */
import { type Socket, createConnection } from 'node:net'
import { BrokenFrame, FrameReader, decodeAnswer, encodeNotification, encodeRequest } from './codec.js'
import { textOf } from './decision.js'
import { Aborted, Refused, Unavailable, type UnavailableKind } from './errors.js'
import { madeIds } from './policies.js'

const PENDING_MAX = 65536
const LATE_MAX = 4096 // late acquires and reserves without an answer; more, and the connection is given up
const UNSENT_SLACK = 1024 // frames of ended calls that may wait in vain for a daemon that does not read
const READ_BYTES = 65536
const WRITE_BYTES = 65536
const BACKOFF_MIN_MS = 10
const BACKOFF_MAX_MS = 250
const BREAKER_TIMEOUTS = 3
const BREAKER_OPEN_MS = 1000
const IDLE_MS = 10 // after this time without an answer the loop looks for the end of the connection before it is used

export interface CallOptions<Result> {
  readonly timeoutMs: number
  readonly signal?: AbortSignal | undefined
  /** Makes of the result what the caller gets; throws where it is not valid. */
  readonly read: (result: unknown) => Result
  /** Takes back a yes that no caller waits for any more. */
  readonly undo?: (result: Result) => { method: string; params: unknown[] } | null
  /** It carries a request id, and may be sent again. */
  readonly repeatable?: boolean | undefined
  /** It goes out even if its time is over, and whatever the breaker's state: it gives something back. */
  readonly mustSend?: boolean | undefined
  /** It means nothing on another connection. */
  readonly isOfConnection?: boolean | undefined
}

/** What a limiter asks: the connection, or a fake. */
export interface Transport {
  call<Result>(method: string, params: readonly unknown[], options: CallOptions<Result>): Promise<Result>
  /** Runs `onLost` once if the connection that holds something now ends. Returns the way to stop that. */
  hold(onLost: () => void): () => void
  readonly pending: number
  /** What the daemon of the present connection says that it can do; empty before its answer to hello. */
  readonly features: ReadonlySet<string>
  /** A daemon has said what it can do, on this connection or on one before. */
  readonly isIntroduced: boolean
  close(): void
}

interface Call {
  readonly msgid: number
  frame: Uint8Array
  readonly params: readonly unknown[]
  readonly method: string
  readonly options: CallOptions<unknown>
  readonly resolve: (result: unknown) => void
  readonly reject: (error: Error) => void
  state: 'unsent' | 'sent' | 'late' | 'ended'
  isProbe: boolean
  isResent: boolean
  timer: NodeJS.Timeout | null
  onAbort: (() => void) | null
}

const ignore = (): void => {}
const NO_FEATURES: ReadonlySet<string> = new Set()

export class Connection implements Transport {
  readonly #path: string
  #socket: Socket | null = null
  #isConnected = false
  #isWriting = false
  #isClosed = false
  #reader = new FrameReader()
  #lastAnswerMs = 0
  #helloMsgid = 0
  #features = NO_FEATURES
  #isIntroduced = false
  #hadId = false // the daemon of the connection before: its successor is most likely the same one

  #lastMsgid = 0
  #fresh: Call[] = []
  #unsent: Call[] = []
  #sent = new Map<number, Call>()
  #pending = 0 // calls that a caller waits for
  #late = 0
  #holds = new Set<() => void>()

  #failures = 0 // to connect, in a row
  #retryAtMs = 0
  #lastFailure = ''
  #timeouts = 0 // in a row
  #openUntilMs = 0
  #isProbing = false

  constructor(path: string) {
    this.#path = path
  }

  get pending(): number {
    return this.#pending
  }

  get features(): ReadonlySet<string> {
    return this.#features
  }

  get isIntroduced(): boolean {
    return this.#isIntroduced
  }

  hold(onLost: () => void): () => void {
    this.#holds.add(onLost)
    return () => this.#holds.delete(onLost)
  }

  close(): void {
    this.#isClosed = true
    this.#holds.clear()
    this.#drop('lost', 'the limiter was closed')
  }

  call<Result>(method: string, params: readonly unknown[], options: CallOptions<Result>): Promise<Result> {
    return new Promise<Result>((resolve, reject) => {
      const { signal } = options
      let isProbe: boolean
      try {
        if (signal?.aborted) throw this.#abortError(signal, false)
        isProbe = this.#admit(options.mustSend === true)
      } catch (error) {
        setImmediate(() => reject(error as Error)) // a program that only asks does not stop its timers
        return
      }

      const msgid = this.#lastMsgid + 1
      const frame = encodeRequest(msgid, method, this.#understood(params))
      this.#lastMsgid = msgid

      const call: Call = {
        msgid,
        frame,
        params,
        method,
        options: options as unknown as CallOptions<unknown>,
        resolve: resolve as (result: unknown) => void,
        reject,
        state: 'unsent',
        isProbe,
        isResent: false,
        timer: null,
        onAbort: null,
      }
      if (isProbe) this.#isProbing = true
      if (signal) this.#watchSignal(call, signal)
      if (this.#pending++ === 0) this.#socket?.ref()
      if (this.#fresh.push(call) === 1) setImmediate(() => this.#takeFresh())
    })
  }

  /** The parameters as the daemon of the present connection takes them: an older one knows no `name` of inline settings, and
   * no `id`. An id that the program wrote is sent all the same: without it the limit would be another one. */
  #understood(params: readonly unknown[]): readonly unknown[] {
    const has = {
      name: this.#features.has('name'),
      id: this.#features.has('id') || (this.#features === NO_FEATURES && this.#hadId),
    }

    return has.name && has.id ? params : params.map((one) => withoutUnknown(one, has))
  }

  /** Throws where a call fails at once. True: it is the breaker's probe. */
  #admit(mustSend: boolean): boolean {
    if (this.#isClosed) throw new Unavailable('unreachable', false, 'the limiter is closed')
    if (this.#pending >= PENDING_MAX)
      throw new Unavailable('overloaded', false, `${PENDING_MAX} calls wait for their answer`)
    if (this.#socket === null && performance.now() < this.#retryAtMs) throw this.#unreachable()
    if (mustSend || this.#openUntilMs === 0) return false
    if (performance.now() >= this.#openUntilMs && !this.#isProbing) return true

    throw new Unavailable('breaker', false, `not tried: the last ${BREAKER_TIMEOUTS} calls timed out`)
  }

  #unreachable(wasSent = false): Unavailable {
    return new Unavailable('unreachable', wasSent, `cannot connect to ${this.#path}: ${this.#lastFailure}`)
  }

  // ---- time ------------------------------------------------------------------------------------------------------

  #takeFresh(): void {
    const calls = this.#fresh
    this.#fresh = []
    for (const call of calls) {
      if (call.state === 'ended') continue
      call.timer = setTimeout(() => setImmediate(() => this.#onTimeout(call)), call.options.timeoutMs)
      this.#unsent.push(call)
    }

    if (this.#unsent.length > 2 * this.#pending + UNSENT_SLACK)
      this.#unsent = this.#unsent.filter(({ state }) => state !== 'ended')

    const isIdle = this.#sent.size === 0 && performance.now() - this.#lastAnswerMs > IDLE_MS
    if (isIdle && this.#isConnected) setImmediate(() => this.#send())
    else this.#send()
  }

  #onTimeout(call: Call): void {
    if (call.state !== 'unsent' && call.state !== 'sent') return

    const wasSent = call.state === 'sent' || call.isResent
    if (++this.#timeouts >= BREAKER_TIMEOUTS) this.#openUntilMs = performance.now() + BREAKER_OPEN_MS
    this.#abandon(call)
    this.#end(call, () =>
      call.reject(new Unavailable('timeout', wasSent, `no answer within ${call.options.timeoutMs} ms`)),
    )
  }

  #watchSignal(call: Call, signal: AbortSignal): void {
    const abort = (): void => {
      if (call.state !== 'unsent' && call.state !== 'sent') return
      const wasSent = call.state === 'sent' || call.isResent
      this.#abandon(call)
      this.#end(call, () => call.reject(this.#abortError(signal, wasSent)))
    }
    // AbortSignal.timeout() is a timer: it may be late like any other
    const onAbort = (): void => void (isTimeout(signal) ? setImmediate(abort) : abort())

    call.onAbort = listen(signal, onAbort)
  }

  #abortError(signal: AbortSignal, wasSent: boolean): Error {
    if (isTimeout(signal)) return new Unavailable('timeout', wasSent, 'no answer before the signal timed out')

    return new Aborted(wasSent, signal.reason)
  }

  /** No caller waits for the call any more. Its state decides what is still to be done with it. */
  #abandon(call: Call): void {
    const isSent = call.state === 'sent'
    if (isSent && call.options.undo !== undefined && this.#features.has('abandon')) {
      call.state = 'ended'
      this.#sent.delete(call.msgid)
      this.#sendFirst(encodeNotification('abandon', [call.msgid]))
      this.#send()
      return
    }

    const mustGoOn = isSent ? call.options.undo !== undefined : call.options.mustSend === true
    if (mustGoOn) {
      call.state = 'late'
      if (isSent && ++this.#late > LATE_MAX) this.#drop('protocol', `${LATE_MAX} late answers are missing`)
    } else {
      call.state = 'ended'
      if (isSent) this.#sent.delete(call.msgid)
    }
  }

  /** The caller gets its result, here and nowhere else. */
  #end(call: Call, settle: () => void): void {
    if (call.state !== 'late') call.state = 'ended'
    if (call.timer) clearTimeout(call.timer)
    call.onAbort?.()
    if (call.isProbe) this.#isProbing = false
    if (--this.#pending === 0) this.#socket?.unref()
    settle()
  }

  // ---- out -------------------------------------------------------------------------------------------------------

  #send(): void {
    if (this.#socket === null) {
      if (this.#unsent.some((call) => call.state === 'unsent')) this.#connect()
      else this.#unsent = []
      return
    }
    if (!this.#isConnected || this.#isWriting) return

    const frames: Uint8Array[] = []
    let bytes = 0
    let taken = 0
    for (; taken < this.#unsent.length && bytes < WRITE_BYTES; taken++) {
      const call = this.#unsent[taken]!
      if (call.state === 'ended') continue
      if (call.state === 'unsent') {
        call.state = 'sent'
        this.#sent.set(call.msgid, call)
      }
      frames.push(call.frame)
      bytes += call.frame.length
    }
    this.#unsent = taken === this.#unsent.length ? [] : this.#unsent.slice(taken)

    if (frames.length > 0) this.#write(frames.length === 1 ? frames[0]! : Buffer.concat(frames, bytes))
  }

  #write(bytes: Uint8Array): void {
    const socket = this.#socket!
    this.#isWriting = true
    socket.write(bytes, (error) => {
      if (error || socket !== this.#socket) return // its end follows
      this.#isWriting = false
      this.#send()
    })
  }

  /** Frames of the client's own, to which no caller waits for an answer, in front of everything else. */
  #sendFirst(frame: Uint8Array): void {
    this.#unsent.unshift({
      msgid: 0,
      frame,
      params: [],
      method: '',
      options: { timeoutMs: 0, read: ignore },
      resolve: ignore,
      reject: ignore,
      state: 'late',
      isProbe: false,
      isResent: false,
      timer: null,
      onAbort: null,
    })
  }

  // ---- the socket ------------------------------------------------------------------------------------------------

  #connect(): void {
    const buffer = Buffer.allocUnsafeSlow(READ_BYTES)
    const onRead = (length: number): boolean => {
      if (socket === this.#socket) this.#read(buffer.subarray(0, length))
      return true
    }
    const socket = createConnection({ path: this.#path, onread: { buffer, callback: onRead } })
    this.#socket = socket
    this.#reader = new FrameReader()

    let failure = 'the daemon closed the connection'
    const onEnd = (): void => {
      if (socket !== this.#socket) return
      if (this.#isConnected) this.#drop('lost', failure)
      else this.#giveUp(failure)
    }
    socket.on('connect', () => {
      if (socket !== this.#socket) return
      this.#isConnected = true
      this.#helloMsgid = ++this.#lastMsgid
      this.#sendFirst(encodeRequest(this.#helloMsgid, 'hello', [{ describe: true }])) // older ones refuse it, and send no `of`
      this.#send()
    })
    socket.on('error', (error: NodeJS.ErrnoException) => void (failure = error.code ?? error.message))
    socket.on('end', onEnd)
    socket.on('close', onEnd)
    if (this.#pending === 0) socket.unref()
  }

  /** No daemon is there: calls fail at once for a while. */
  #giveUp(failure: string): void {
    const wait = Math.min(BACKOFF_MAX_MS, BACKOFF_MIN_MS * 2 ** Math.min(this.#failures++, 10))
    this.#retryAtMs = performance.now() + wait * (0.75 + Math.random() / 4)
    this.#lastFailure = failure
    this.#detach()

    const calls = this.#unsent
    this.#unsent = []
    for (const call of calls)
      if (call.state === 'unsent') this.#end(call, () => call.reject(this.#unreachable(call.isResent)))
  }

  /** The connection ends, by either side. What was sent may have been charged; what never left goes on. */
  #drop(kind: UnavailableKind, failure: string, code: string | null = null): void {
    this.#detach()
    this.#late = 0

    const sent = [...this.#sent.values()]
    this.#sent.clear()
    const again: Call[] = []
    for (const call of sent) {
      if (call.state !== 'sent') continue
      if (call.options.repeatable && !call.isResent && !this.#isClosed) {
        call.state = 'unsent'
        call.isResent = true
        again.push(call)
      } else {
        this.#end(call, () => call.reject(new Unavailable(kind, true, failure, code)))
      }
    }

    const unsent = this.#isClosed ? [...this.#unsent, ...this.#fresh] : this.#unsent
    this.#unsent = again
    for (const call of unsent) {
      if (call.state !== 'unsent') continue
      if (this.#isClosed || call.options.isOfConnection)
        this.#end(call, () => call.reject(new Unavailable(kind, call.isResent, failure, code)))
      else this.#unsent.push(call)
    }
    for (const call of this.#unsent) call.frame = encodeRequest(call.msgid, call.method, this.#understood(call.params))

    const lost = [...this.#holds]
    this.#holds.clear()
    for (const onLost of lost) onLost()
    if (!this.#isClosed) this.#send()
  }

  #detach(): void {
    const socket = this.#socket
    this.#socket = null
    this.#isConnected = false
    this.#isWriting = false
    this.#features = NO_FEATURES
    this.#timeouts = 0 // the daemon that was too slow is gone
    this.#openUntilMs = 0
    socket?.destroy()
  }

  // ---- in --------------------------------------------------------------------------------------------------------

  #read(chunk: Buffer): void {
    const socket = this.#socket
    this.#lastAnswerMs = performance.now()

    try {
      this.#reader.push(chunk)
      for (let frame = this.#reader.next(); frame !== null; frame = this.#reader.next()) {
        this.#onAnswer(frame)
        if (socket !== this.#socket) return
      }
    } catch (error) {
      this.#drop('protocol', error instanceof Error ? error.message : String(error))
    }
  }

  #onAnswer(frame: Uint8Array): void {
    const { msgid, error, result } = decodeAnswer(frame)
    if (msgid === null) {
      const [code, message] = codeOf(error) ?? ['INTERNAL', 'the daemon ended the connection']
      this.#drop('lost', message, code)
      return
    }
    if (msgid > this.#lastMsgid) throw new BrokenFrame('an answer to a call that was never made')

    this.#failures = 0
    this.#timeouts = 0
    this.#openUntilMs = 0
    if (msgid === this.#helloMsgid) {
      this.#features = featuresOf(result)
      this.#isIntroduced = true
      this.#hadId = this.#features.has('id')
    }
    const call = this.#sent.get(msgid)
    if (call === undefined) return // late, or a duplicate
    this.#sent.delete(msgid)

    const outcome = outcomeOf(call, error, result)
    if (call.state === 'late') {
      this.#late--
      if (!(outcome instanceof Error)) this.#undo(call, outcome.value)
    } else {
      this.#end(call, () => (outcome instanceof Error ? call.reject(outcome) : call.resolve(outcome.value)))
    }
  }

  #undo(call: Call, value: unknown): void {
    const undo = call.options.undo?.(value)
    if (!undo) return

    this.#sendFirst(encodeRequest(++this.#lastMsgid, undo.method, undo.params))
    this.#send()
  }
}

interface Listener {
  readonly all: Set<() => void>
  readonly runAll: () => void
}

const listeners = new WeakMap<AbortSignal, Listener>()

/** Many calls may share a signal: it gets one listener for all of them. Returns the way to stop listening. */
function listen(signal: AbortSignal, run: () => void): () => void {
  let listener = listeners.get(signal)
  if (listener === undefined) {
    const all = new Set<() => void>()
    listener = { all, runAll: () => [...all].forEach((one) => one()) }
    listeners.set(signal, listener)
  }
  const { all, runAll } = listener

  if (all.size === 0) signal.addEventListener('abort', runAll)
  all.add(run)
  return () => {
    all.delete(run)
    if (all.size === 0) signal.removeEventListener('abort', runAll)
  }
}

function withoutUnknown(value: unknown, has: { name: boolean; id: boolean }): unknown {
  if (Array.isArray(value)) return value.map((one) => withoutUnknown(one, has))
  if (typeof value !== 'object' || value === null || !('algorithm' in value || 'compat' in value || 'limits' in value))
    return value

  const { name, id, ...settings } = value as Record<string, unknown>
  return {
    ...settings,
    ...(has.name && name !== undefined && { name }),
    ...((has.id || !madeIds.has(value)) && id !== undefined && { id }),
  }
}

/** Of an answer to hello; of older daemons none. */
function featuresOf(result: unknown): ReadonlySet<string> {
  const listed = typeof result === 'object' && result !== null ? (result as Record<string, unknown>)['features'] : null

  return new Set(Array.isArray(listed) ? listed.filter((one) => typeof one === 'string') : [])
}

function isTimeout(signal: AbortSignal): boolean {
  return signal.reason instanceof Error && signal.reason.name === 'TimeoutError'
}

/** `CODE: message`, as [CODE, the whole text]; null: it is not one. */
function codeOf(error: unknown): [string, string] | null {
  const words = textOf(error)
  if (words === null) return null
  const end = words.indexOf(': ')

  return [end < 0 ? words : words.slice(0, end), words]
}

function outcomeOf(call: Call, error: unknown, result: unknown): Error | { value: unknown } {
  if (error === null || error === undefined) {
    try {
      return { value: call.options.read(result) }
    } catch (wrong) {
      return new Unavailable('protocol', true, wrong instanceof Error ? wrong.message : String(wrong))
    }
  }

  const known = codeOf(error)
  if (known === null || (result !== null && result !== undefined))
    return new Unavailable('protocol', true, 'the answer is neither an error nor a result')
  const [code, message] = known
  switch (code) {
    case 'OVERLOADED':
      return new Unavailable('overloaded', call.isResent, message, code)
    case 'SHUTTING_DOWN':
      return new Unavailable('shutting_down', call.isResent, message, code)
    case 'STORE_UNAVAILABLE':
      return new Unavailable('store_unavailable', true, message, code)
    default:
      return new Refused(code, message)
  }
}
