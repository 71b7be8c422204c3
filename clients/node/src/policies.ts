/*
 * The settings of inline policies, as far as a client looks at them.
 */
import type { Policy } from './limiter.js'

const OTHERS = [
  'algorithm',
  'compat',
  'key_prefix',
  'timezone',
  'week_start',
  'slot_ttl',
  'burst',
  'max_wait',
  'start',
  'count_denied',
  'lease',
  'phase',
  'on_failure',
  'deadline',
  'idempotency_window',
  'debt',
  'shadow',
  'local_share',
  'merge_back',
  'on_change',
  'unlimited',
  'key_format',
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
