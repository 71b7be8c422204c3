/*
 * MessagePack-RPC as bytes: requests out, answers in. Whatever the peer sends, an answer is bounded in size and nesting,
 * each of its bytes is looked at once, and nothing is allocated for a size that was only announced.
 */
import { Decoder, Encoder } from '@msgpack/msgpack'

export const ANSWER_MAX_BYTES = 4 << 20
export const NESTING_MAX = 16
const VALUES_MAX = 2 * 65536 // in one array or map; the daemon has at most 65536 checks in flight

/** The bytes are not an answer: the connection cannot go on. */
export class BrokenFrame extends Error {
  override readonly name = 'BrokenFrame'
}

const encoder = new Encoder({ ignoreUndefined: true })

export function encodeRequest(msgid: number, method: string, params: readonly unknown[]): Uint8Array {
  return encoder.encode([0, msgid, method, params])
}

export function encodeNotification(method: string, params: readonly unknown[]): Uint8Array {
  return encoder.encode([2, method, params])
}

const decoder = new Decoder({
  maxStrLength: ANSWER_MAX_BYTES,
  maxBinLength: ANSWER_MAX_BYTES,
  maxArrayLength: ANSWER_MAX_BYTES,
  maxMapLength: ANSWER_MAX_BYTES,
  maxExtLength: 0,
})

export interface Answer {
  /** null: the daemon's final error */
  readonly msgid: number | null
  readonly error: unknown
  readonly result: unknown
}

/** Texts are copied; bytes point into `frame`. Throws BrokenFrame. */
export function decodeAnswer(frame: Uint8Array): Answer {
  let message: unknown
  try {
    message = decoder.decode(frame)
  } catch (error) {
    throw new BrokenFrame(`the answer cannot be decoded: ${error instanceof Error ? error.message : String(error)}`)
  }

  if (!Array.isArray(message) || message.length !== 4 || message[0] !== 1) throw new BrokenFrame('not a response')
  const [, msgid, error, result] = message as unknown[]
  if (msgid !== null && !(Number.isSafeInteger(msgid) && (msgid as number) >= 0)) throw new BrokenFrame('not a msgid')

  return { msgid: msgid as number | null, error, result }
}

/** Cuts a stream of bytes into messages. It remembers how far it has looked, however small the pieces are. */
export class FrameReader {
  #bytes: Buffer = Buffer.alloc(0) // what has arrived and is not taken: a view of the last chunk, or of #kept
  #kept: Buffer = Buffer.alloc(0) // space for an unfinished message; grows by doubling
  #at = 0 // the next header to look at, within #bytes
  #open: number[] = [] // for each open array or map: values still missing
  #started = false

  /** Appends. The owner of `chunk` may reuse it once next() has returned null. */
  push(chunk: Buffer): void {
    const before = this.#bytes.length
    if (before === 0) {
      this.#bytes = chunk
      return
    }

    this.#makeRoom(before + chunk.length)
    chunk.copy(this.#kept, before)
    this.#bytes = this.#kept.subarray(0, before + chunk.length)
  }

  /** The next whole message, valid until the next push(); null: more bytes are needed. Throws BrokenFrame. */
  next(): Uint8Array | null {
    if (!this.#isWhole()) {
      this.#keep()
      return null
    }

    const frame = this.#bytes.subarray(0, this.#at)
    this.#bytes = this.#bytes.subarray(this.#at)
    this.#at = 0
    this.#started = false
    return frame
  }

  /** What is left of a chunk moves to the beginning of #kept. */
  #keep(): void {
    const left = this.#bytes
    const isThere = left.buffer === this.#kept.buffer && left.byteOffset === this.#kept.byteOffset
    if (left.length === 0 || isThere) return

    this.#makeRoom(left.length)
    left.copy(this.#kept)
    this.#bytes = this.#kept.subarray(0, left.length)
  }

  #makeRoom(bytes: number): void {
    if (this.#kept.length >= bytes) return

    const larger = Buffer.allocUnsafeSlow(Math.max(bytes, 2 * this.#kept.length, 4096))
    this.#kept.copy(larger)
    this.#kept = larger
  }

  #isWhole(): boolean {
    const bytes = this.#bytes

    while (!this.#started || this.#open.length > 0) {
      if (this.#at >= bytes.length) return false
      const first = bytes[this.#at]!
      if (!this.#started && !isArray(first)) throw new BrokenFrame('not an array')

      const header = headerBytes(first)
      if (this.#at + header > bytes.length) return false
      const [payload, values] = contents(first, bytes, this.#at + 1)
      if (this.#at + header + payload + values > ANSWER_MAX_BYTES)
        throw new BrokenFrame(`the answer is longer than ${ANSWER_MAX_BYTES} bytes`)

      if (values > VALUES_MAX) throw new BrokenFrame(`the answer has a list of ${values} values`)

      this.#started = true
      this.#at += header + payload
      this.#count(values)
    }

    return this.#at <= bytes.length
  }

  /** One value has begun that holds `values` others. */
  #count(values: number): void {
    const open = this.#open
    if (open.length > 0) open[open.length - 1]!--
    if (values > 0) open.push(values)
    if (open.length > NESTING_MAX) throw new BrokenFrame(`the answer is nested deeper than ${NESTING_MAX}`)

    while (open.length > 0 && open[open.length - 1] === 0) open.pop()
  }
}

function isArray(first: number): boolean {
  return (first & 0xf0) === 0x90 || first === 0xdc || first === 0xdd
}

/** The first byte and the length that follows it. */
function headerBytes(first: number): number {
  switch (first) {
    case 0xc4:
    case 0xd9:
      return 2 // bin 8, str 8
    case 0xc5:
    case 0xda:
    case 0xdc:
    case 0xde:
      return 3 // bin 16, str 16, array 16, map 16
    case 0xc6:
    case 0xdb:
    case 0xdd:
    case 0xdf:
      return 5 // bin 32, str 32, array 32, map 32
    default:
      return 1
  }
}

/** [bytes after the header, values inside]. `at` is behind the first byte. */
function contents(first: number, bytes: Buffer, at: number): [number, number] {
  if (first <= 0x7f || first >= 0xe0) return [0, 0]
  if (first <= 0x8f) return [0, (first & 0x0f) * 2]
  if (first <= 0x9f) return [0, first & 0x0f]
  if (first <= 0xbf) return [first & 0x1f, 0]

  switch (first) {
    case 0xc0:
    case 0xc2:
    case 0xc3:
      return [0, 0]
    case 0xcc:
    case 0xd0:
      return [1, 0]
    case 0xcd:
    case 0xd1:
      return [2, 0]
    case 0xca:
    case 0xce:
    case 0xd2:
      return [4, 0]
    case 0xcb:
    case 0xcf:
    case 0xd3:
      return [8, 0]
    case 0xc4:
    case 0xd9:
      return [bytes.readUInt8(at), 0]
    case 0xc5:
    case 0xda:
      return [bytes.readUInt16BE(at), 0]
    case 0xc6:
    case 0xdb:
      return [bytes.readUInt32BE(at), 0]
    case 0xdc:
      return [0, bytes.readUInt16BE(at)]
    case 0xdd:
      return [0, bytes.readUInt32BE(at)]
    case 0xde:
      return [0, bytes.readUInt16BE(at) * 2]
    case 0xdf:
      return [0, bytes.readUInt32BE(at) * 2]
    default:
      throw new BrokenFrame(`a value begins with 0x${first.toString(16)}`)
  }
}
