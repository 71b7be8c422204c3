/*
 * The settings of inline policies, as far as a client looks at them.
 */
import { shortKey } from './keys.js'
import type { Key, Policy } from './limiter.js'

const OTHERS = [
  'algorithm',
  'compat',
  'key_prefix',
  'timezone',
  'week_start',
  'anchor',
  'slot_ttl',
  'burst',
  'max_wait',
  'start',
  'count_denied',
  'lease',
  'counts',
  'penalty',
  'phase',
  'on_failure',
  'deadline',
  'idempotency_window',
  'debt',
  'shadow',
  'warn_at',
  'local_share',
  'merge_back',
  'on_change',
  'unlimited',
  'key_format',
  'id',
] as const

/** Of ratelimitd.yaml(5): what an inline policy of one limit may have. */
export const SETTINGS_OF_ONE: readonly string[] = ['name', 'limit', 'window', ...OTHERS]
export const SETTINGS: readonly string[] = [...SETTINGS_OF_ONE, 'limits', 'by']

/** The settings besides name, limit and window, by their names in ratelimitd.yaml(5). */
export type OtherSettings = { readonly [Name in (typeof OTHERS)[number]]?: unknown }

const NAME = /^[A-Za-z0-9._-]{1,64}$/

/** Is it written like the name of a policy? */
export function isName(value: unknown): value is string {
  return typeof value === 'string' && NAME.test(value)
}

/** The name of an inline policy; null: it has none, or the policy is a configured one. */
export function nameIn(policy: Policy): string | null {
  return typeof policy === 'object' ? ((policy['name'] as string | undefined) ?? null) : null
}

/** Throws TypeError where the name of an inline policy is none. */
export function checkSettings(what: string, policy: Policy): void {
  if (typeof policy !== 'object' || policy === null || policy['name'] === undefined || isName(policy['name'])) return

  throw new TypeError(
    `${what}: name is not 1 to 64 letters, digits, dots, dashes or underscores: ${String(policy['name'])}`,
  )
}

const subjects = new WeakMap<object, string>()

/** Equal settings have equal texts, whatever they are called and in which order they are written. */
function settingsText(policy: Readonly<Record<string, unknown>>): string {
  const known = subjects.get(policy)
  if (known !== undefined) return known

  const { name: _, ...settings } = policy
  const text = JSON.stringify(Object.entries(settings).sort(([one], [other]) => (one < other ? -1 : 1)))
  subjects.set(policy, text)
  return text
}

/** A policy and key, to find out whether two limits count on the same. */
export function subjectOf(policy: Policy, key: Key): string {
  const bytes = typeof key === 'string' ? key : Buffer.from(key).toString('latin1')

  return `${typeof policy === 'string' ? policy : settingsText(policy)} ${typeof key === 'string' ? Buffer.from(bytes).toString('latin1') : bytes}`
}

/** What moves a limit of these would move more than its number. */
const NOT_WITH_ID = ['burst', 'max_wait', 'lease', 'on_change', 'merge_back', 'debt', 'candidate']
const ID_MAX_BYTES = 256

/** Settings whose `id` the client made: a daemon without this feature gets them without. */
export const madeIds = new WeakSet<object>()

/** Settings whose numbers may change, with the id of their one counter. */
export function withId(policy: Policy, id: string): Policy {
  if (typeof policy !== 'object' || policy['id'] !== undefined || policy['limits'] !== undefined) return policy
  if (policy['algorithm'] === 'leaky_bucket' || NOT_WITH_ID.some((name) => policy[name] !== undefined)) return policy
  if (policy['count_denied'] === true) return policy

  const isPlain = Buffer.byteLength(id) <= ID_MAX_BYTES && !/[\x00-\x1f\x7f]/.test(id)
  const made = { ...policy, id: isPlain ? id : shortened(id) }
  madeIds.add(made)
  return made
}

/** As a long key is: its first bytes and its hash. */
function shortened(id: string): string {
  return Buffer.from(shortKey(Buffer.from(id)))
    .toString()
    .replace(/[\x00-\x1f\x7f]/g, '?')
}

/** Do its denials count? Of settings that are written in the program, or of an entry of `policies`. */
export function countsDenials(settings: Readonly<Record<string, unknown>>): boolean {
  const limits = Array.isArray(settings['limits']) ? (settings['limits'] as Record<string, unknown>[]) : []

  return settings['count_denied'] === true || limits.some((limit) => limit['count_denied'] === true)
}
