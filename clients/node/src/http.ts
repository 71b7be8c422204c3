/*
 * A decision as HTTP: the RateLimit fields of draft-ietf-httpapi-ratelimit-headers-10, the older X-RateLimit fields, and
 * the answers 429 and 503. Seconds are rounded up: a client that believes them does not come too early.
 */
import type { Decision } from './decision.js'

/** `ietf`: RateLimit and RateLimit-Policy; `legacy`: X-RateLimit-Limit, -Remaining, -Reset */
export type HeaderMode = 'ietf' | 'legacy' | 'both' | 'none'
const HEADER_MODES: readonly HeaderMode[] = ['ietf', 'legacy', 'both', 'none']

export interface HeaderOptions {
  /** default 'ietf' */
  readonly headers?: HeaderMode | undefined
  /** X-RateLimit-Reset in seconds from now, or since 1970; default 'delta' */
  readonly reset?: 'delta' | 'epoch' | undefined
}

/** Throws TypeError where a choice is not valid. */
export function checkHeaderOptions(what: string, { headers = 'ietf', reset = 'delta' }: HeaderOptions): void {
  if (!HEADER_MODES.includes(headers))
    throw new TypeError(`${what}: headers is not one of ${HEADER_MODES.join(', ')}: ${String(headers)}`)
  if (reset !== 'delta' && reset !== 'epoch')
    throw new TypeError(`${what}: reset is neither delta nor epoch: ${String(reset)}`)
}

export type Field = readonly [name: string, value: string]

/** The whole answer to a request that does not go on. */
export interface Refusal {
  readonly status: 429 | 503
  readonly fields: readonly Field[]
  readonly contentType: string
  readonly body: string
}

const PROBLEMS = 'https://iana.org/assignments/http-problem-types#'

function seconds(ms: number): number {
  return Math.ceil(ms / 1000)
}

/** Until there is more of the limit in `of`; null: it is not known. */
function waitMs(decision: Decision): number | null {
  if (decision.windowMs === 0) return null

  return decision.allowed ? decision.ofResetMs : decision.retryAfterMs
}

/** Somebody counted, the figures are meant for the caller, and the limit's name can stand in a field. */
function isReported(decision: Decision): boolean {
  return decision.of !== null && !decision.shadowDenied && /^[\x20-\x7e]*$/.test(decision.of)
}

function quoted(name: string): string {
  return `"${name.replace(/["\\]/g, '\\$&')}"`
}

function policyItem({ of, quota, windowMs, limit }: Decision): string {
  const window = windowMs ? `w=${seconds(windowMs)}` : 'qu="concurrent-requests"'
  const burst = quota !== null && limit > quota ? `;ratelimitd-burst=${limit}` : ''

  return `${quoted(of!)};q=${quota ?? limit};${window}${burst}`
}

function stateItem(decision: Decision): string {
  const ms = waitMs(decision)

  return `${quoted(decision.of!)};r=${decision.remaining}${ms === null ? '' : `;t=${seconds(ms)}`}`
}

function legacyFields(decision: Decision, reset: 'delta' | 'epoch', nowMs: number): Field[] {
  const ms = waitMs(decision)
  const fields: Field[] = [
    ['X-RateLimit-Limit', String(decision.limit)],
    ['X-RateLimit-Remaining', String(decision.remaining)],
  ]
  if (ms !== null) fields.push(['X-RateLimit-Reset', String(seconds(reset === 'epoch' ? nowMs + ms : ms))])

  return fields
}

/** What one limit decided, and what it was decided together with: the combined decision of a checkAll, else the same. */
export interface Reported {
  readonly decision: Decision
  readonly whole: Decision
  readonly options: HeaderOptions
}

/**
 * The fields of the answer, for everything that was decided about one request. They are added to those that are there.
 * `whole`: whose combined decision the older fields report, the first that has them.
 */
export function fieldsFor(reported: readonly Reported[], nowMs: number, whole = reported): Field[] {
  const ietf = reported
    .filter(
      ({ decision, options: { headers = 'ietf' } }) =>
        (headers === 'ietf' || headers === 'both') && isReported(decision),
    )
    .map(({ decision }) => decision)
  const fields: Field[] = []
  if (ietf.length > 0) {
    fields.push(['RateLimit-Policy', ietf.map(policyItem).join(', ')])
    fields.push(['RateLimit', ietf.map(stateItem).join(', ')])
  }

  const legacy = whole.find(
    ({ whole, options: { headers } }) => (headers === 'legacy' || headers === 'both') && isReported(whole),
  )
  return legacy ? [...fields, ...legacyFields(legacy.whole, legacy.options.reset ?? 'delta', nowMs)] : fields
}

/** Whether a request with this Accept takes JSON. */
export function takesJson(accept: string | undefined): boolean {
  if (accept === undefined || accept.trim() === '') return true

  return accept.split(',').some((range) => {
    const [type = '', ...parameters] = range
      .toLowerCase()
      .split(';')
      .map((part) => part.trim())
    const isJson = type === '*/*' || type === 'application/*' || type === 'application/json' || type.endsWith('+json')
    return isJson && !parameters.some((parameter) => /^q=0(\.0*)?$/.test(parameter))
  })
}

function refusal(
  status: 429 | 503,
  fields: Field[],
  accept: string | undefined,
  problem: object,
  line: string,
): Refusal {
  return takesJson(accept)
    ? { status, fields, contentType: 'application/problem+json', body: JSON.stringify(problem) }
    : { status, fields, contentType: 'text/plain; charset=utf-8', body: `${line}\n` }
}

/** No decision was made, and the limit denies then. */
export function unavailableRefusal(accept: string | undefined): Refusal {
  const problem = { type: `${PROBLEMS}temporary-reduced-capacity`, title: 'Temporary reduced capacity', status: 503 }

  return refusal(503, [['Retry-After', '1']], accept, problem, 'Temporary reduced capacity: try again in 1 s.')
}

/** `decision` denies; `fields` are those of fieldsFor(). */
export function deniedRefusal(decision: Decision, fields: readonly Field[], accept: string | undefined): Refusal {
  if (decision.source === 'deny') return unavailableRefusal(accept)

  const name = decision.boundBy ?? decision.of
  const problem = {
    type: `${PROBLEMS}quota-exceeded`,
    title: 'Quota exceeded',
    status: 429,
    ...(name === null ? {} : { 'violated-policies': [name] }),
  }
  const isSlot = decision.windowMs === 0
  if (decision.retryAfterMs === null || isSlot) return refusal(429, [...fields], accept, problem, 'Too many requests.')

  const after = Math.max(1, seconds(decision.retryAfterMs))
  return refusal(
    429,
    [...fields, ['Retry-After', String(after)]],
    accept,
    problem,
    `Too many requests: try again in ${after} s.`,
  )
}

/** Is it a list, to which each limiter adds? */
export function isJoined(name: string): boolean {
  return name === 'RateLimit' || name === 'RateLimit-Policy'
}

/** What a field becomes where others have set it before. `written`: what earlier places of this request wrote there. */
export function joined(name: string, before: unknown, value: string, written: Map<string, string>): string {
  const own = written.get(name)
  written.set(name, value)
  if (!isJoined(name) || before === undefined || before === null) return value
  const present = String(before)

  return own !== undefined && present.includes(own) ? present.replace(own, () => value) : `${present}, ${value}`
}
