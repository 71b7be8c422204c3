/*
 * Whom a limit counts for.
 */
import { createHash } from 'node:crypto'
import { isIP } from 'node:net'
import { checkOptions } from './options.js'
import { warnOnce } from './warnings.js'

export type KeyPart = string | number | bigint

const KEY_MAX_BYTES = 512
const KEY_KEPT_BYTES = 64

/** A key that comes from outside may be of any length; the daemon's are not. */
export function boundedKey(key: string | Uint8Array): string | Uint8Array {
  if (typeof key === 'string' && key.length * 3 <= KEY_MAX_BYTES) return key
  if (typeof key !== 'string' && !(key instanceof Uint8Array))
    throw new TypeError(`a key is neither text nor bytes: ${String(key)}`)
  const bytes = typeof key === 'string' ? Buffer.from(key) : key
  return bytes.length <= KEY_MAX_BYTES ? key : shortKey(bytes)
}

export function shortKey(bytes: Uint8Array): Uint8Array {
  const hash = createHash('sha256').update(bytes).digest('hex')
  return Buffer.concat([bytes.subarray(0, KEY_KEPT_BYTES), Buffer.from(`#${hash}`)])
}

/** One key of several parts. No two lists of parts give the same key. An empty part is an error, like an empty key. */
export function joinKey(...parts: readonly KeyPart[]): string {
  const texts = parts.map((part) => {
    if (part === undefined || part === null || part === '') throw new TypeError('a part of a key is empty')
    if (typeof part === 'function' || typeof (part as { then?: unknown }).then === 'function')
      throw new TypeError('a part of a key is a function or a promise, not its value')
    const text = String(part)
    return /[%|]/.test(text) ? text.replaceAll('%', '%25').replaceAll('|', '%7C') : text
  })
  if (texts.length === 0) throw new TypeError('a key has no parts')

  return texts.join('|')
}

/** For secrets, such as API keys: their SHA-256. */
export function hashed(secret: string | Uint8Array): string {
  if (secret.length === 0) throw new TypeError('the secret is empty')

  return createHash('sha256').update(secret).digest('hex')
}

// ---- addresses -----------------------------------------------------------------------------------------------------

/** 16 bytes; IPv4 as ::ffff:a.b.c.d. */
type Address = Uint8Array

const IPV4_PREFIX_BITS = 96

function isIPv4(address: Address): boolean {
  for (let i = 0; i < 10; i++) if (address[i] !== 0) return false

  return address[10] === 0xff && address[11] === 0xff
}

/** `192.0.2.7`, `192.0.2.7:80`, `[192.0.2.7]`, `2001:db8::1`, `[2001:db8::1]:80`, `fe80::1%eth0`; null: no address. */
function parseAddress(text: string): Address | null {
  const [, bracketed, plain] = /^(?:\[([^[\]]+)\]|([^:]+))(?::\d{1,5})?$/.exec(text.trim()) ?? []
  let host = bracketed ?? plain ?? text.trim()
  const zone = host.indexOf('%')
  if (zone >= 0 && isIP(host.slice(0, zone)) === 6) host = host.slice(0, zone)

  switch (isIP(host)) {
    case 4:
      return Uint8Array.from([...Array<number>(10).fill(0), 0xff, 0xff, ...host.split('.').map(Number)])
    case 6:
      return parseIPv6(host)
    default:
      return null
  }
}

/** `host` is valid. */
function parseIPv6(host: string): Address {
  const dotted = /^(.*:)(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(host)
  if (dotted) {
    const [a, b, c, d] = dotted.slice(2).map(Number) as [number, number, number, number]
    host = `${dotted[1]}${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`
  }
  const groups = (part: string | undefined): number[] =>
    part ? part.split(':').map((group) => parseInt(group, 16)) : []
  const [head, tail] = host.split('::').map(groups) as [number[], number[]?]
  const all = tail === undefined ? head : [...head, ...Array<number>(8 - head.length - tail.length).fill(0), ...tail]

  return Uint8Array.from(all.flatMap((group) => [group >> 8, group & 0xff]))
}

function masked(address: Address, bits: number): Address {
  return address.map((byte, i) => byte & (0xff << Math.max(0, Math.min(8, (i + 1) * 8 - bits))))
}

/** As RFC 5952 writes it. */
function formatIPv6(address: Address): string {
  const groups = Array.from({ length: 8 }, (_, i) => (address[2 * i]! << 8) | address[2 * i + 1]!)
  let [start, length] = [0, 0] // of the longest run of zeros, the first of equals
  for (let i = 0; i < 8; i++) {
    let end = i
    while (end < 8 && groups[end] === 0) end++
    if (end - i > length) [start, length] = [i, end - i]
    i = Math.max(i, end)
  }
  const hex = (part: number[]): string => part.map((group) => group.toString(16)).join(':')
  if (length < 2) return hex(groups)

  return `${hex(groups.slice(0, start))}::${hex(groups.slice(start + length))}`
}

function formatKey(address: Address, prefix: number): string {
  if (isIPv4(address)) return address.subarray(12).join('.')
  if (prefix === 128) return formatIPv6(address)

  return `${formatIPv6(masked(address, prefix))}/${prefix}`
}

export interface IpOptions {
  /**
   * The proxies in front of the program, as addresses and CIDRs, or how many there are. Then the forwarded header is
   * read from the right, as far as they are trusted. Default: the address that the framework gives.
   */
  readonly trustedProxies?: number | readonly string[] | undefined
  /** how many bits of an IPv6 address count; default 64 */
  readonly ipv6Prefix?: number | undefined
  /** the one header that the trusted proxies set; default X-Forwarded-For */
  readonly header?: string | undefined
}

/** What a request has about its sender. */
export interface Sender {
  /** of the connection; undefined: a Unix socket */
  readonly peer: string | undefined
  /** that the framework gives, by its own settings */
  readonly address: string | undefined
  /** the framework believes every proxy, so the client can write its own address */
  readonly believesAll: boolean
  /** all lines of the header, joined with commas; `name` in lower case */
  header(name: string): string | undefined
}

/** Checks the options once, and returns the function that finds a sender's key. It throws where there is no address. */
export function ipKey(options: IpOptions = {}): (sender: Sender) => string {
  checkOptions('ip', options, ['trustedProxies', 'ipv6Prefix', 'header'])
  const { trustedProxies, ipv6Prefix = 64 } = options
  const header = (options.header ?? 'x-forwarded-for').toLowerCase()
  if (!Number.isInteger(ipv6Prefix) || ipv6Prefix < 1 || ipv6Prefix > 128)
    throw new TypeError(`ip: ipv6Prefix is not a number from 1 to 128: ${ipv6Prefix}`)
  if (options.header !== undefined && trustedProxies === undefined)
    throw new TypeError('ip: header needs trustedProxies')
  const isTrusted = trustedProxies === undefined ? null : trust(trustedProxies)
  const isCounted = typeof trustedProxies === 'number'

  return (sender) => {
    if (!isTrusted) warnAboutProxies(sender)
    const address = isTrusted
      ? walk(sender.header(header), sender.peer, isTrusted, isCounted)
      : parseAddress(sender.address ?? '')
    if (address === null)
      throw new TypeError(
        'the client has no IP address: give the limit another key, or set trustedProxies to the number of proxies',
      )

    return formatKey(address, ipv6Prefix)
  }
}

function warnAboutProxies(sender: Sender): void {
  if (sender.header('x-forwarded-for') === undefined) return

  if (sender.believesAll)
    warnOnce(
      'every proxy is trusted: clients can write their own address into X-Forwarded-For. Trust your proxies by address, or by their number',
    )
  else if (sender.address === sender.peer)
    warnOnce(
      "X-Forwarded-For arrives, but no proxy is trusted: all clients behind a proxy count as one. Set trustedProxies, or your framework's own setting",
    )
}

type IsTrusted = (address: Address | null, hop: number) => boolean

function trust(proxies: number | readonly string[]): IsTrusted {
  if (typeof proxies === 'number') {
    if (!Number.isInteger(proxies) || proxies < 0)
      throw new TypeError(`ip: trustedProxies is not a number of proxies: ${proxies}`)
    return (_address, hop) => hop < proxies
  }

  const networks = proxies.map(parseNetwork)
  return (address) =>
    address !== null &&
    networks.some(([network, bits]) => masked(address, bits).every((byte, i) => byte === network[i]))
}

function parseNetwork(text: string): [Address, number] {
  const [host = '', length] = text.split('/')
  const address = parseAddress(host)
  const isShort = address !== null && !host.includes(':') // an IPv4 address in its own form
  const most = isShort ? 32 : 128
  const bits = length === undefined ? most : /^\d+$/.test(length) ? Number(length) : NaN
  if (address === null || !(bits <= most))
    throw new TypeError(`ip: trustedProxies: ${text} is not an address or network`)

  const from = isShort ? bits + IPV4_PREFIX_BITS : bits
  return [masked(address, from), from]
}

/** From the connection backwards through the header: the first address that is not trusted, else the last one there is. */
function walk(
  forwarded: string | undefined,
  peer: string | undefined,
  isTrusted: IsTrusted,
  isCounted: boolean,
): Address | null {
  let address = parseAddress(peer ?? '')
  if (address === null && !isCounted) return null

  const entries = forwarded === undefined ? [] : forwarded.split(',')
  for (let hop = 0; isTrusted(address, hop) && entries.length > 0; hop++) {
    const next = parseAddress(entries.pop()!)
    if (next === null) break
    address = next
  }
  return address
}

/** A user's key, or the address of one who has no name; the two never meet. */
export function userKey(user: KeyPart | null | undefined, ip: () => string): string {
  return user === null || user === undefined ? joinKey('i', ip()) : joinKey('u', user)
}

type Found = KeyPart | null | undefined

/** The keys of a framework; `Args` is what its handlers get. */
export interface Keys<Args extends unknown[]> {
  /** the client's address */
  readonly ip: (options?: IpOptions) => (...args: Args) => string
  /** the user, or the address of one who has no name; an empty name is no key */
  readonly user: {
    (find: (...args: Args) => Found, options?: IpOptions): (...args: Args) => string
    (find: (...args: Args) => Promise<Found>, options?: IpOptions): (...args: Args) => Promise<string>
  }
}

export function keysFor<Args extends unknown[]>(senderOf: (...args: Args) => Sender): Keys<Args> {
  return {
    ip: (options) => {
      const key = ipKey(options)

      return (...args) => key(senderOf(...args))
    },

    user: (find: (...args: Args) => Found | Promise<Found>, options?: IpOptions) => {
      if (typeof find !== 'function') throw new TypeError('user: give the function that finds the user of a request')
      const key = ipKey(options)

      const keyOf = (found: Found, args: Args): string =>
        found === '' ? '' : userKey(found, () => key(senderOf(...args)))
      return (...args: Args): never => {
        const found = find(...args)
        return (found instanceof Promise ? found.then((user) => keyOf(user, args)) : keyOf(found, args)) as never
      }
    },
  }
}
