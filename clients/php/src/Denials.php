<?php

declare(strict_types=1);

namespace Ratelimitd;

/**
 * Remembered denials: a flood from one process, or with APCu from all workers of PHP-FPM, does not reach the daemon.
 * docs/clients.md has the rules.
 *
 * @internal
 */
final class Denials
{
    private const ENTRIES_MAX = 1024;

    /** @var array<string, array{string, list<array{string|array, string}>, Decision, int, int}> the oldest one first */
    private array $entries = [];
    private readonly ?string $prefix;

    public function __construct(private readonly int $durationMs, string $socket)
    {
        $this->prefix = Shared::hasApcu() ? 'ratelimitd.deny.' . md5($socket) . '.' : null;
    }

    /** What two equal checks have in common. */
    public static function same(mixed ...$parts): string
    {
        return serialize($parts);
    }

    /** Equal settings are equal; `name` is not one of them. */
    public static function frozen(string|array $policy): string
    {
        if (is_string($policy)) {
            return $policy;
        }
        unset($policy['name']);
        self::sort($policy);
        return serialize($policy);
    }

    /** @return ?array{list<array{string|array, string}>, Decision} what was asked, and the denial */
    public function find(string $same): ?array
    {
        $name = $this->nameOf($same);
        $entry = $this->prefix === null ? $this->entries[$name] ?? null : apcu_fetch($name);
        if (!is_array($entry) || $entry[0] !== $same) {
            return null;
        }
        [, $asked, $decision, $began, $ends] = $entry;
        $now = Shared::nowMs();
        if ($now >= $ends || $now < $began) {
            unset($this->entries[$name]);
            return null;
        }
        return [$asked, $decision->repeated($now - $began)];
    }

    /** @param list<array{string|array, string}> $asked policies and keys */
    public function put(string $same, array $asked, Decision $decision): void
    {
        if ($decision->allowed || $decision->source === 'deny') {
            return;
        }
        $lasts = $decision->retryAfterMs < 0 ? $this->durationMs : min($this->durationMs, $decision->retryAfterMs);
        $name = $this->nameOf($same);
        $now = Shared::nowMs();
        $entry = [$same, $asked, $decision, $now, $now + $lasts];
        if ($this->prefix !== null) {
            apcu_store($name, $entry, intdiv($lasts, 1000) + 1);
            return;
        }
        unset($this->entries[$name]);
        if (count($this->entries) >= self::ENTRIES_MAX) {
            unset($this->entries[array_key_first($this->entries)]);
        }
        $this->entries[$name] = $entry;
    }

    /** Every denial with this policy, or one of its limits, and this key. */
    public function forget(string|array $policy, string $key): void
    {
        foreach ($this->all() as $name => [, $asked]) {
            foreach ($asked as [$own, $ownKey]) {
                if ($ownKey === $key && self::isOf($policy, $own)) {
                    unset($this->entries[$name]);
                    $this->prefix === null || apcu_delete($name);
                }
            }
        }
    }

    /** @return array<string, array{string, list<array{string|array, string}>, Decision, int, int}> */
    private function all(): array
    {
        if ($this->prefix === null) {
            return $this->entries;
        }
        return apcu_fetch(array_map(fn (int $n): string => $this->prefix . $n, range(0, self::ENTRIES_MAX - 1)));
    }

    /** APCu has 1024 places, and a denial takes the one that its hash names: so there are never more. */
    private function nameOf(string $same): string
    {
        return $this->prefix === null ? $same : $this->prefix . crc32($same) % self::ENTRIES_MAX;
    }

    /** Does $named, which may be `policy/limit`, or the name of an inline policy, mean this policy? */
    private static function isOf(string|array $named, string|array $policy): bool
    {
        if (is_string($named)) {
            return strtok($named, '/') === (is_string($policy) ? $policy : $policy['name'] ?? null);
        }
        return self::frozen($named) === self::frozen($policy);
    }

    private static function sort(array &$settings): void
    {
        if (!array_is_list($settings)) {
            ksort($settings);
        }
        foreach ($settings as &$setting) {
            if (is_array($setting)) {
                self::sort($setting);
            }
        }
    }
}
