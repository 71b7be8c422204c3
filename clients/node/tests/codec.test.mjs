import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { encode } from '@msgpack/msgpack'
import { ANSWER_MAX_BYTES, BrokenFrame, FrameReader, decodeAnswer, encodeRequest } from '../dist/esm/codec.js'
import { decisionOf } from '../dist/esm/decision.js'

const messages = [
  [
    1,
    1,
    null,
    { allowed: true, limit: 10, source: 'memory', more: [1, -1, 1.5, null, true, 'x'.repeat(300), { a: {} }, []] },
  ],
  [1, 2 ** 32, 'BAD_KEY: key: is empty', null],
  [1, 3, null, Array.from({ length: 70000 / 2 }, (_, i) => i)],
  [1, null, 'TOO_LARGE: message', null],
  [1, 4, null, { text: 'y'.repeat(70000), bytes: new Uint8Array(300), large: 2 ** 53 - 1 }],
]
const stream = Buffer.concat(messages.map((message) => encode(message)))

/** What a reader makes of the stream when it comes in pieces of these sizes; the chunk's memory is reused, as in life. */
function read(sizeOf) {
  const reader = new FrameReader()
  const chunk = Buffer.alloc(65536)
  const answers = []
  for (let at = 0; at < stream.length;) {
    const length = Math.min(sizeOf(), chunk.length, stream.length - at)
    stream.copy(chunk, 0, at, at + length)
    at += length
    reader.push(chunk.subarray(0, length))
    for (let frame = reader.next(); frame !== null; frame = reader.next())
      answers.push(structuredClone(decodeAnswer(frame)))
  }
  return answers
}

describe('answers', () => {
  const whole = messages.map(([, msgid, error, result]) => ({ msgid, error, result }))

  for (const size of [1, 2, 7, 4096, 65536])
    test(`are the same in pieces of ${size}`, () =>
      assert.deepEqual(
        read(() => size),
        whole,
      ))

  test('are the same in pieces of any size', () => {
    for (let round = 0; round < 20; round++)
      assert.deepEqual(
        read(() => 1 + Math.floor(Math.random() ** 4 * 65536)),
        whole,
      )
  })

  test('of four megabytes are read in one pass, however small the pieces are', () => {
    const frame = Buffer.from(encode([1, 1, null, 'z'.repeat(ANSWER_MAX_BYTES - 100)]))
    const reader = new FrameReader()
    let found = null
    for (let at = 0; at < frame.length; at += 100) {
      reader.push(frame.subarray(at, at + 100))
      found = reader.next()
    }
    assert.equal(decodeAnswer(found).result.length, ANSWER_MAX_BYTES - 100)
  })
})

describe('refused as soon as it can be seen:', () => {
  const cases = {
    'a byte that begins nothing': '9401c0c1',
    'an ext': '940101c0d40100',
    'a text of 4 GiB': '940101c0dbffffffff',
    'a list of a million': '940101c0dd000f4240',
    'a map of 4 billion': '940101c0dfffffffff',
    'a map as message': '8101',
    HTTP: '48545450',
    nesting: '940101c0' + '91'.repeat(16),
  }
  for (const [name, hex] of Object.entries(cases))
    test(name, () => {
      const reader = new FrameReader()
      reader.push(Buffer.from(hex, 'hex'))
      assert.throws(() => reader.next(), BrokenFrame)
    })

  for (const message of [
    [1, 1, null],
    [0, 1, 'ping', []],
    [1, 'one', null, {}],
    [1, -1, null, {}],
    [1, 1.5, null, {}],
  ])
    test(`as response: ${JSON.stringify(message)}`, () =>
      assert.throws(() => decodeAnswer(encode(message)), BrokenFrame))

  test('a map with __proto__ as key', () => {
    assert.throws(() => decodeAnswer(Buffer.from('940101c081a95f5f70726f746f5f5f80', 'hex')), BrokenFrame)
  })
})

describe('a decision', () => {
  const fields = {
    allowed: true,
    limit: 1,
    remaining: 0,
    retry_after_ms: 0,
    reset_after_ms: 5,
    source: 'memory',
    policy_version: 1,
  }

  test('fills in what the daemon leaves out', () => {
    const { granted, boundBy, delayMs, shadowDenied, of, windowMs } = decisionOf(fields, 3)
    assert.deepEqual(
      { granted, boundBy, delayMs, shadowDenied, of, windowMs },
      { granted: 3, boundBy: null, delayMs: 0, shadowDenied: false, of: null, windowMs: null },
    )
    assert.equal(decisionOf({ ...fields, allowed: false, retry_after_ms: -1 }, 3).granted, 0)
    assert.equal(decisionOf({ ...fields, allowed: false, retry_after_ms: -1 }, 3).retryAfterMs, null)
  })

  for (const [name, value] of [
    ['allowed', 'yes'],
    ['allowed', undefined],
    ['limit', 'ten'],
    ['remaining', 1.5],
    ['retry_after_ms', null],
    ['source', 7],
    ['of', 7],
    ['shadow_denied', 1],
  ])
    test(`is not a decision with ${name} = ${String(value)}`, () =>
      assert.throws(() => decisionOf({ ...fields, [name]: value }, 1), { name: 'InvalidAnswer' }))
})

test('requests are the bytes of the protocol', () => {
  const hex = (bytes) => Buffer.from(bytes).toString('hex')
  assert.equal(hex(encodeRequest(1, 'check', ['login', 'alice'])), '940001a5636865636b92a56c6f67696ea5616c696365')
  assert.equal(
    hex(encodeRequest(300, 'check', ['p', Buffer.from([0xff]), { cost: 2, at_most: undefined }])),
    '9400cd012ca5636865636b93a170c401ff81a4636f737402',
  )
})
