/*
 * OpenTelemetry, where the program has it: the span of the request gets what was decided about it.
 */
type Api = typeof import('@opentelemetry/api')

let api: Api | null = null
import('@opentelemetry/api').then(
  (loaded) => void (api = loaded),
  () => {}, // the package is optional
)

export function traceDecision(policy: string, isAllowed: boolean, source: string): void {
  api?.trace
    .getActiveSpan()
    ?.setAttributes({
      'ratelimit.policy': policy,
      'ratelimit.result': isAllowed ? 'allowed' : 'denied',
      'ratelimit.source': source,
    })
}
