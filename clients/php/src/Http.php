<?php

declare(strict_types=1);

namespace Ratelimitd;

/** A decision as HTTP: docs/http.md. */
final class Http
{
    private const PROBLEMS = 'https://iana.org/assignments/http-problem-types#';

    /**
     * @param Decision|list<Decision> $decisions one for each limit that was asked, in order
     * @param string $form ietf, legacy, both or none
     * @param string $reset delta or epoch, of the legacy form
     * @return list<array{string, string}> fields of the answer, in order
     */
    public static function headers(
        Decision|array $decisions,
        string $form = 'ietf',
        string $reset = 'delta',
        ?int $nowMs = null,
    ): array {
        $decisions = is_array($decisions) ? $decisions : [$decisions];
        $members = array_merge(...array_map(static fn (Decision $one): array => $one->members ?: [$one], $decisions));
        $counted = array_filter($members, self::isCounted(...));
        $fields = [];
        if ($counted !== [] && in_array($form, ['ietf', 'both'], true)) {
            $fields[] = ['RateLimit-Policy', implode(', ', array_map(self::policyItem(...), $counted))];
            $fields[] = ['RateLimit', implode(', ', array_map(self::stateItem(...), $counted))];
        }
        $whole = array_values(array_filter($decisions, self::isCounted(...)));
        if ($whole !== [] && in_array($form, ['legacy', 'both'], true)) {
            usort($whole, static fn (Decision $a, Decision $b): int => [$a->allowed, $a->remaining] <=> [$b->allowed, $b->remaining]);
            $fields[] = ['X-RateLimit-Limit', (string) $whole[0]->limit];
            $fields[] = ['X-RateLimit-Remaining', (string) $whole[0]->remaining];
            $waitMs = self::waitMs($whole[0]);
            if ($waitMs !== null) {
                $nowMs ??= (int) (microtime(true) * 1000);
                $fields[] = ['X-RateLimit-Reset', self::seconds($reset === 'epoch' ? $nowMs + $waitMs : $waitMs)];
            }
        }
        return $fields;
    }

    /**
     * Of a denial, or, without a decision, of a request without one. None if waiting does not help.
     *
     * @return list<array{string, string}>
     */
    public static function retryAfter(?Decision $decision): array
    {
        $wait = self::wait($decision);
        return $wait === null ? [] : [['Retry-After', $wait]];
    }

    /**
     * The answer to a denied request; without a decision: to one that got none.
     *
     * @return array{int, string, string} status, Content-Type, body
     */
    public static function refusal(?Decision $decision, ?string $accept = null): array
    {
        $isDecided = $decision !== null && $decision->source !== 'deny';
        [$status, $kind, $title, $text] = $isDecided ? [429, 'quota-exceeded', 'Quota exceeded', 'Too many requests']
            : [503, 'temporary-reduced-capacity', 'Temporary reduced capacity', 'Temporary reduced capacity'];
        if (!self::acceptsJson($accept)) {
            $wait = self::wait($decision);
            return [$status, 'text/plain; charset=utf-8', $text . ($wait === null ? '' : ": try again in $wait s") . ".\n"];
        }
        $name = $isDecided ? $decision->boundBy ?? $decision->of : null;
        $more = $name === null ? [] : ['violated-policies' => [$name]];
        return [$status, 'application/problem+json', self::problem($kind, $title, $status, $more)];
    }

    /**
     * The value of a field that may be there: lists of limits are joined, other fields of the application are replaced.
     *
     * @param string $earlier '': it is not there
     */
    public static function merged(string $name, string $earlier, string $value): string
    {
        return $earlier !== '' && in_array($name, ['RateLimit-Policy', 'RateLimit'], true) ? "$earlier, $value" : $value;
    }

    private static function wait(?Decision $decision): ?string
    {
        return match (true) {
            $decision === null, $decision->source === 'deny' => '1',
            $decision->retryAfterMs < 0, $decision->windowMs === 0 => null,
            default => self::seconds(max(1, $decision->retryAfterMs)),
        };
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
