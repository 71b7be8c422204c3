<?php

declare(strict_types=1);

namespace Ratelimitd;

/**
 * For tests: a client that asks no daemon. It allows everything until the test changes that, and keeps what it was asked.
 */
final class FakeLimiter extends Client
{
    /** @var list<list<mixed>> what was asked, in order: [method, policy, key, cost] */
    public array $calls = [];
    /** @var array<string, int> policies that are denied, with the time to wait in ms */
    private array $denied = [];
    private ?Unavailable $failure = null;
    private int $given = 0;
    private array $slots = [];

    public function __construct()
    {
        parent::__construct('fake');
    }

    public function allowAll(): void
    {
        $this->denied = [];
        $this->failure = null;
    }

    /** From now on this policy is denied. @param int $retryAfterMs -1: never */
    public function deny(string $policy, int $retryAfterMs = 1000): void
    {
        $this->denied[$policy] = $retryAfterMs;
    }

    /** From now on every call fails. */
    public function unavailable(string $kind = 'unreachable'): void
    {
        $this->failure = new Unavailable($kind, "the fake is $kind", in_array($kind, ['timeout', 'lost', 'store_unavailable'], true));
    }

    public function verify(array $policies, bool $inline = false, ?float $timeout = null): void
    {
    }

    public function call(string $method, array $params, ?float $timeout = null, bool $resend = false): array
    {
        if ($this->failure !== null) {
            throw $this->failure;
        }
        switch ($method) {
            case 'check_all':
            case 'check_many':
                $members = [];
                foreach ($params[0] as [$policy, $key, $cost]) {
                    $this->calls[] = [$method, $policy, $key, $cost];
                    $members[] = $this->decision($policy, $cost);
                }
                return $method === 'check_many' ? $members : self::combined($members);
            case 'acquire':
                $this->calls[] = [$method, $params[0], $params[1]];
                $id = 'slot-' . ++$this->given;
                $this->slots[$id] = true;
                return ['slot' => $id] + $this->decision($params[0], 1);
            case 'release':
                $isHeld = isset($this->slots[$params[0]]);
                unset($this->slots[$params[0]]);
                return ['released' => $isHeld];
            case 'reserve':
                $this->calls[] = [$method, ...array_slice($params, 0, 3)];
                return ['reservation' => 'reservation-' . ++$this->given] + $this->decision($params[0], $params[2]);
            case 'reset':
                return ['removed' => true];
            case 'settle':
            case 'cancel':
                return $this->decision('', 0);
            case 'policies':
            case 'stats':
                return [];
        }
        $cost = is_object($params[2]) ? $params[2]->cost ?? $params[2]->at_most : $params[2];
        if ($method === 'check') {
            $this->calls[] = [$method, $params[0], $params[1], $cost];
        }
        return $this->decision($method === 'refund' ? '' : $params[0], $method === 'refund' ? 0 : $cost);
    }

    private function decision(string|array $policy, int $cost): array
    {
        $name = is_array($policy) ? $policy['name'] ?? 'inline' : $policy;
        $retryMs = $this->denied[$name] ?? null;
        return [
            'allowed' => $retryMs === null, 'limit' => 100, 'remaining' => $retryMs === null ? 99 : 0,
            'retry_after_ms' => $retryMs ?? 0, 'reset_after_ms' => 60000, 'granted' => $retryMs === null ? $cost : 0,
            'source' => 'memory', 'policy_version' => 1, 'of' => $name, 'quota' => 100, 'window_ms' => 60000,
            'of_reset_ms' => 60000,
        ];
    }

    /** The decision of check_all: the first denial, or the first member. */
    private static function combined(array $members): array
    {
        $denials = array_values(array_filter($members, static fn (array $member): bool => !$member['allowed']));
        $all = $denials[0] ?? $members[0];
        if ($denials !== []) {
            $all['bound_by'] = $all['of'];
        }
        return ['members' => $members, 'granted' => array_sum(array_column($members, 'granted'))] + $all;
    }
}
