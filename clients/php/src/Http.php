<?php

declare(strict_types=1);

namespace Ratelimitd;

/** A decision as HTTP: docs/http.md. */
final class Http
{
    private const PROBLEMS = 'https://iana.org/assignments/http-problem-types#';

    /**
     * @param string|list<string> $form ietf, legacy, both or none; or one for each member
     * @param string $reset delta or epoch, of the legacy form
     * @return list<array{string, string}> fields of the answer, in order
     */
    public static function headers(
        Decision $decision,
        string|array $form = 'ietf',
        string $reset = 'delta',
        ?int $nowMs = null,
    ): array {
        $members = $decision->members ?: [$decision];
        $forms = is_array($form) ? $form : array_fill(0, count($members), $form);
        $counted = array_filter(
            $members,
            static fn (Decision $one, int $i): bool => in_array($forms[$i], ['ietf', 'both'], true) && self::isCounted($one),
            ARRAY_FILTER_USE_BOTH,
        );
        $fields = [];
        if ($counted !== []) {
            $fields[] = ['RateLimit-Policy', implode(', ', array_map(self::policyItem(...), $counted))];
            $fields[] = ['RateLimit', implode(', ', array_map(self::stateItem(...), $counted))];
        }
        if (self::isCounted($decision) && array_intersect($forms, ['legacy', 'both']) !== []) {
            $fields[] = ['X-RateLimit-Limit', (string) $decision->limit];
            $fields[] = ['X-RateLimit-Remaining', (string) $decision->remaining];
            $waitMs = self::waitMs($decision);
            if ($waitMs !== null) {
                $nowMs ??= (int) (microtime(true) * 1000);
                $fields[] = ['X-RateLimit-Reset', self::seconds($reset === 'epoch' ? $nowMs + $waitMs : $waitMs)];
            }
        }
        return $fields;
    }

    /**
     * The answer to a denied request; without a decision: to one that nobody could decide.
     *
     * @param string|list<string> $form as of headers()
     * @return array{int, list<array{string, string}>, string} status, fields, body
     */
    public static function denial(
        ?Decision $decision,
        ?string $accept = null,
        string|array $form = 'ietf',
        string $reset = 'delta',
        ?int $nowMs = null,
    ): array {
        $isJson = self::acceptsJson($accept);
        $type = ['Content-Type', $isJson ? 'application/problem+json' : 'text/plain; charset=utf-8'];
        if ($decision === null || $decision->source === 'deny') {
            $body = $isJson ? self::problem('temporary-reduced-capacity', 'Temporary reduced capacity', 503)
                : "Temporary reduced capacity: try again in 1 s.\n";
            return [503, [['Retry-After', '1'], $type], $body];
        }

        $fields = self::headers($decision, $form, $reset, $nowMs);
        $wait = null;
        if ($decision->retryAfterMs >= 0 && $decision->windowMs !== 0) {
            $wait = self::seconds(max(1, $decision->retryAfterMs));
            $fields[] = ['Retry-After', $wait];
        }
        $fields[] = $type;
        if (!$isJson) {
            return [429, $fields, 'Too many requests' . ($wait === null ? '' : ": try again in $wait s") . ".\n"];
        }
        $name = $decision->boundBy ?? $decision->of;
        $more = $name === null ? [] : ['violated-policies' => [$name]];
        return [429, $fields, self::problem('quota-exceeded', 'Quota exceeded', 429, $more)];
    }

    /** Somebody counted, the figures are meant for the caller, and the name can stand in a field. */
    private static function isCounted(Decision $decision): bool
    {
        return $decision->quota !== null && !$decision->shadowDenied && preg_match('/^[ -~]*$/D', $decision->of) === 1;
    }

    private static function policyItem(Decision $decision): string
    {
        $item = self::text($decision->of) . ";q={$decision->quota}";
        $item .= $decision->windowMs > 0 ? ';w=' . self::seconds($decision->windowMs) : ';qu="concurrent-requests"';
        return $item . ($decision->limit > $decision->quota ? ";ratelimitd-burst={$decision->limit}" : '');
    }

    private static function stateItem(Decision $decision): string
    {
        $waitMs = self::waitMs($decision);
        return self::text($decision->of) . ";r={$decision->remaining}" . ($waitMs === null ? '' : ';t=' . self::seconds($waitMs));
    }

    /** Until there is more of the limit in `of`; null where it is not known. */
    private static function waitMs(Decision $decision): ?int
    {
        $ms = $decision->allowed ? $decision->ofResetMs : $decision->retryAfterMs;
        return $decision->windowMs === 0 || $ms < 0 ? null : $ms;
    }

    private static function seconds(int $ms): string
    {
        return (string) intdiv($ms + 999, 1000);
    }

    /** A String of Structured Fields. */
    private static function text(string $text): string
    {
        return '"' . addcslashes($text, '"\\') . '"';
    }

    private static function problem(string $kind, string $title, int $status, array $more = []): string
    {
        $problem = ['type' => self::PROBLEMS . $kind, 'title' => $title, 'status' => $status] + $more;
        return json_encode($problem, JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE | JSON_INVALID_UTF8_SUBSTITUTE);
    }

    private static function acceptsJson(?string $accept): bool
    {
        if ($accept === null || trim($accept) === '') {
            return true;
        }
        foreach (explode(',', strtolower($accept)) as $range) {
            $parts = array_map('trim', explode(';', $range));
            $isJson = in_array($parts[0], ['*/*', 'application/*', 'application/json'], true) || str_ends_with($parts[0], '+json');
            if ($isJson && preg_grep('/^q=0(\.0*)?$/', array_slice($parts, 1)) === []) {
                return true;
            }
        }
        return false;
    }
}
