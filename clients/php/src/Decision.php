<?php

declare(strict_types=1);

namespace Ratelimitd;

/** What the daemon decided; PROTOCOL.md describes every field. A denial is an answer like any other. */
final class Decision
{
    private function __construct(
        public readonly bool $allowed,
        public readonly int $limit,
        public readonly int $remaining,
        /** -1: never */
        public readonly int $retryAfterMs,
        public readonly int $resetAfterMs,
        public readonly int $delayMs,
        public readonly int $granted,
        public readonly ?string $boundBy,
        public readonly string $source,
        public readonly ?string $reason,
        public readonly int $policyVersion,
        public readonly bool $shadowDenied,
        /** more than the policy's warn_at is used */
        public readonly bool $near,
        /** the limit that the figures speak of; null for failure answers, unlimited policies and older daemons */
        public readonly ?string $of,
        public readonly ?int $quota,
        public readonly ?int $windowMs,
        public readonly ?int $ofResetMs,
        /** @var Decision[] after checkAll() */
        public readonly array $members,
        public readonly int $refunded,
        public readonly int $charged,
        public readonly bool $ended,
    ) {
    }

    private const UNCOUNTED = ['allow', 'deny', 'unlimited']; // sources: failure answers, and no limit at all
    private const NUMBER_MAX = (1 << 53) - 1;
    private const REQUIRED = ['allowed', 'limit', 'remaining', 'retry_after_ms', 'reset_after_ms', 'source'];
    /** what a field is, in place of a number from 0 on */
    private const TYPES = [
        'allowed' => 'bool', 'shadow_denied' => 'bool', 'near' => 'bool', 'ended' => 'bool',
        'bound_by' => 'string', 'source' => 'string', 'reason' => 'string', 'of' => 'string',
    ];
    private const NUMBERS = [
        'limit', 'remaining', 'retry_after_ms', 'reset_after_ms', 'delay_ms', 'granted', 'policy_version', 'quota', 'window_ms',
        'of_reset_ms', 'refunded', 'charged',
    ];

    /**
     * @param array<string, mixed> $map as the protocol has it
     * @param int $cost what was asked for: granted, if the daemon leaves it out
     * @param ?int[] $costs of the members, for checkAll()
     */
    public static function of(array $map, int $cost = 1, ?array $costs = null): self
    {
        foreach (self::REQUIRED as $name) {
            if (!isset($map[$name])) {
                throw new Unavailable('protocol', "a decision without $name", true);
            }
        }
        foreach (self::TYPES as $name => $type) {
            if (isset($map[$name]) && get_debug_type($map[$name]) !== $type) {
                throw new Unavailable('protocol', "$name of a decision has the wrong type", true);
            }
        }
        foreach (self::NUMBERS as $name) {
            $number = $map[$name] ?? 0;
            if (!is_int($number) || $number < ($name === 'retry_after_ms' ? -1 : 0) || $number > self::NUMBER_MAX) {
                throw new Unavailable('protocol', "$name of a decision is " . json_encode($number), true);
            }
        }

        $isDescribed = isset($map['of'], $map['quota'], $map['window_ms'], $map['of_reset_ms']);
        return new self(
            allowed: $map['allowed'],
            limit: $map['limit'],
            remaining: $map['remaining'],
            retryAfterMs: $map['retry_after_ms'],
            resetAfterMs: $map['reset_after_ms'],
            delayMs: $map['delay_ms'] ?? 0,
            granted: $map['granted'] ?? ($map['allowed'] ? $cost : 0),
            boundBy: $map['bound_by'] ?? null,
            source: $map['source'],
            reason: $map['reason'] ?? null,
            policyVersion: $map['policy_version'] ?? 0,
            shadowDenied: $map['shadow_denied'] ?? false,
            near: $map['near'] ?? false,
            of: $map['of'] ?? null,
            quota: $isDescribed ? $map['quota'] : null,
            windowMs: $isDescribed ? $map['window_ms'] : null,
            ofResetMs: $isDescribed ? $map['of_reset_ms'] : null,
            members: self::membersOf($map['members'] ?? null, $costs),
            refunded: $map['refunded'] ?? 0,
            charged: $map['charged'] ?? 0,
            ended: $map['ended'] ?? false,
        );
    }

    /** @return self[] */
    private static function membersOf(mixed $members, ?array $costs): array
    {
        if ($costs === null) {
            return [];
        }
        if (!is_array($members) || count($members) !== count($costs)) {
            throw new Unavailable('protocol', 'not one decision for each member', true);
        }
        return array_map(
            static fn (mixed $member, int $cost): self => self::of(is_array($member) ? $member : [], $cost),
            array_values($members),
            $costs,
        );
    }

    /** Was something charged, as far as it was allowed? @internal */
    public function isCounted(): bool
    {
        return !in_array($this->source, self::UNCOUNTED, true) && !$this->shadowDenied;
    }

    /** This denial, as a client repeats it so many milliseconds later. @internal */
    public function repeated(int $afterMs): self
    {
        return new self(...[
            ...get_object_vars($this),
            'source' => $this->allowed ? $this->source : 'deny_cache',
            'retryAfterMs' => $this->retryAfterMs > 0 ? max(1, $this->retryAfterMs - $afterMs) : $this->retryAfterMs,
            'resetAfterMs' => max(0, $this->resetAfterMs - $afterMs),
            'ofResetMs' => $this->ofResetMs === null ? null : max(0, $this->ofResetMs - $afterMs),
            'members' => array_map(static fn (self $member): self => $member->repeated($afterMs), $this->members),
        ]);
    }

    // ---- names of inline policies

    private const GENERATED = '/^(?:inline-|id\+)[0-9a-f]{16}(?=\/|$)/D';

    /**
     * The map of a decision with the names of inline policies in place of those that the daemon generates.
     *
     * @param list<?string> $names of the members of a checkAll(); else one
     * @internal
     */
    public static function named(array $map, array $names): array
    {
        if (!isset($map['members']) || !is_array($map['members'])) {
            return self::renamed($map, fn (string $generated): string => $names[0] ?? $generated);
        }
        $known = [];
        foreach (array_values($map['members']) as $i => $member) {
            $name = $names[$i] ?? null;
            if ($name === null || !is_array($member)) {
                continue;
            }
            foreach (['of', 'bound_by'] as $field) {
                if (is_string($member[$field] ?? null) && preg_match(self::GENERATED, $member[$field], $found)) {
                    $known[$found[0]] = $name;
                }
            }
            $map['members'][$i] = self::renamed($member, fn (): string => $name);
        }
        return self::renamed($map, fn (string $generated): string => $known[$generated] ?? $generated);
    }

    private static function renamed(array $map, callable $nameOf): array
    {
        foreach (['of', 'bound_by'] as $field) {
            if (is_string($map[$field] ?? null)) {
                $map[$field] = preg_replace_callback(self::GENERATED, fn (array $found): string => $nameOf($found[0]), $map[$field]);
            }
        }
        return $map;
    }
}
