<?php

declare(strict_types=1);

namespace Ratelimitd;

/**
 * After three timeouts in a row no request asks for a second; then one call probes the daemon. Under PHP-FPM the workers count
 * together, because a client of one request never sees three timeouts.
 *
 * @internal
 */
final class Breaker
{
    private const TIMEOUTS = 3;
    private const OPEN_MS = 1000;
    private const COUNT = 255; // the number kept: until when no request asks, and in its last 8 bits how many timed out
    private const TRIES = 10;

    private static int $made = 0;
    private readonly string $name;

    public function __construct(string $socket)
    {
        $this->name = 'breaker.' . (Shared::isOn() ? md5($socket) : ++self::$made);
    }

    /** May a call go out? After the second of silence only the first one may. */
    public function admits(): bool
    {
        $state = Shared::get($this->name);
        if (($state & self::COUNT) < self::TIMEOUTS) {
            return true;
        }
        $now = Shared::nowMs();
        $leftMs = ($state >> 8) - $now;
        $isOver = $leftMs <= 0 || $leftMs > self::OPEN_MS;
        return $isOver && Shared::replace($this->name, $state, self::state($state & self::COUNT, $now));
    }

    public function timedOut(): void
    {
        for ($tries = 0; $tries < self::TRIES; $tries++) {
            $state = Shared::get($this->name);
            $count = min(self::COUNT, ($state & self::COUNT) + 1);
            if (Shared::replace($this->name, $state, self::state($count, Shared::nowMs()))) {
                return;
            }
        }
    }

    public function answered(): void
    {
        $state = Shared::get($this->name);
        if ($state !== 0) {
            Shared::replace($this->name, $state, 0);
        }
    }

    private static function state(int $count, int $nowMs): int
    {
        return $count | ($nowMs + self::OPEN_MS) << 8;
    }
}
