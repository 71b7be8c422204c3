<?php

/**
 * Ratelimitd: asks the ratelimitd of this host. One file, no extension, PHP 8.1 or newer; see README.md.
 *
 * A client connects when it is first asked, and keeps that connection until it is destroyed: under PHP-FPM, to the end of
 * the request. Durations are whole milliseconds in names that end in Ms, and seconds elsewhere.
 */

declare(strict_types=1);

namespace Ratelimitd;

/** No answer. The program goes on by its own rule. */
final class Unavailable extends \RuntimeException
{
    /**
     * @param string $kind unreachable, timeout, lost, protocol, overloaded, shutting_down, store_unavailable or breaker
     * @param bool $maybeCharged false: certainly nothing was charged
     * @param ?string $rpcCode the daemon's code, if it sent one
     */
    public function __construct(
        public readonly string $kind,
        string $message,
        public readonly bool $maybeCharged = false,
        public readonly ?string $rpcCode = null,
    ) {
        parent::__construct($message);
    }
}

/** The daemon refused the call: a mistake in the program or in the configuration. */
final class Refused extends \LogicException
{
    /** @param string[] $missing after verify(): the policies that are not configured */
    public function __construct(public readonly string $rpcCode, string $message, public readonly array $missing = [])
    {
        parent::__construct($message);
    }
}

/** Thrown by withSlot() and withReservation() where they were denied. */
final class Denied extends \RuntimeException
{
    public function __construct(public readonly Decision $decision)
    {
        parent::__construct('denied' . ($decision->boundBy === null ? '' : " by {$decision->boundBy}"));
    }
}

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

    /**
     * @param array<string, mixed> $map as the protocol has it
     * @param int $cost what was asked for: granted, where the daemon leaves it out
     * @param ?int[] $costs of the members, for checkAll()
     */
    public static function of(array $map, int $cost = 1, ?array $costs = null): self
    {
        $allowed = $map['allowed'] ?? null;
        $source = $map['source'] ?? null;
        $numbers = [];
        foreach (['limit', 'remaining', 'retry_after_ms', 'reset_after_ms'] as $name) {
            $numbers[$name] = $map[$name] ?? null;
            if (!is_int($numbers[$name])) {
                throw new Unavailable('protocol', "a decision without a valid $name", true);
            }
        }
        if (!is_bool($allowed) || !is_string($source)) {
            throw new Unavailable('protocol', 'a decision without a valid allowed or source', true);
        }

        $integer = static fn (string $name): ?int => is_int($map[$name] ?? null) ? $map[$name] : null;
        $text = static fn (string $name): ?string => is_string($map[$name] ?? null) ? $map[$name] : null;
        $of = $text('of');
        $isDescribed = $of !== null && isset($map['quota'], $map['window_ms'], $map['of_reset_ms']);
        return new self(
            allowed: $allowed,
            limit: $numbers['limit'],
            remaining: $numbers['remaining'],
            retryAfterMs: $numbers['retry_after_ms'],
            resetAfterMs: $numbers['reset_after_ms'],
            delayMs: $integer('delay_ms') ?? 0,
            granted: $integer('granted') ?? ($allowed ? $cost : 0),
            boundBy: $text('bound_by'),
            source: $source,
            reason: $text('reason'),
            policyVersion: $integer('policy_version') ?? 0,
            shadowDenied: ($map['shadow_denied'] ?? false) === true,
            of: $isDescribed ? $of : null,
            quota: $isDescribed ? $integer('quota') : null,
            windowMs: $isDescribed ? $integer('window_ms') : null,
            ofResetMs: $isDescribed ? $integer('of_reset_ms') : null,
            members: self::membersOf($map['members'] ?? null, $costs),
            refunded: $integer('refunded') ?? 0,
            charged: $integer('charged') ?? 0,
            ended: ($map['ended'] ?? false) === true,
        );
    }

    /** @return self[] */
    private static function membersOf(mixed $members, ?array $costs): array
    {
        if ($costs === null || !is_array($members) || count($members) !== count($costs)) {
            return $costs === null && $members === null ? []
                : throw new Unavailable('protocol', 'not one decision for each member', true);
        }
        return array_map(
            static fn (mixed $member, int $cost): self => self::of(is_array($member) ? $member : [], $cost),
            array_values($members),
            $costs,
        );
    }
}

/** The part of MessagePack that the protocol uses. Own code, because it must distinguish an unfinished answer from a broken one. */
final class MessagePack
{
    public const BYTES_MAX = 4 << 20;
    public const DEPTH_MAX = 16;
    public const MEMBERS_MAX = 65536;

    /** Lists become arrays, other arrays and objects maps. */
    public static function pack(mixed $value): string
    {
        return match (true) {
            $value === null => "\xc0",
            is_bool($value) => $value ? "\xc3" : "\xc2",
            is_int($value) => self::packInteger($value),
            is_string($value) => match (true) {
                strlen($value) < 32 => chr(0xa0 | strlen($value)),
                strlen($value) < 256 => "\xd9" . chr(strlen($value)),
                strlen($value) < 65536 => "\xda" . pack('n', strlen($value)),
                default => "\xdb" . pack('N', strlen($value)),
            } . $value,
            is_array($value) && array_is_list($value) =>
                self::packSize(count($value), 0x90, "\xdc", "\xdd") . implode('', array_map(self::pack(...), $value)),
            is_array($value), is_object($value) => self::packMap((array) $value),
            default => throw new \InvalidArgumentException('a ' . get_debug_type($value) . ' cannot be sent'),
        };
    }

    private static function packInteger(int $value): string
    {
        return match (true) {
            $value >= 0 && $value < 128 => chr($value),
            $value >= 0 => "\xcf" . pack('J', $value),
            default => "\xd3" . pack('J', $value),
        };
    }

    private static function packSize(int $size, int $small, string $wide, string $wider): string
    {
        return $size < 16 ? chr($small | $size) : ($size < 65536 ? $wide . pack('n', $size) : $wider . pack('N', $size));
    }

    private static function packMap(array $map): string
    {
        $bytes = self::packSize(count($map), 0x80, "\xde", "\xdf");
        foreach ($map as $name => $value) {
            $bytes .= self::pack((string) $name) . self::pack($value);
        }
        return $bytes;
    }

    /**
     * One value. $read(n) returns exactly n bytes, or throws.
     *
     * @param callable(int): string $read
     */
    public static function unpack(callable $read): mixed
    {
        $budget = self::BYTES_MAX;
        return self::unpackValue($read, $budget, 1);
    }

    private static function unpackValue(callable $read, int &$budget, int $depth): mixed
    {
        if ($depth > self::DEPTH_MAX) {
            throw new Unavailable('protocol', 'an answer is nested too deeply', true);
        }
        $tag = ord($read(1));
        $budget--;
        if ($tag < 0x80) {
            return $tag;
        }
        if ($tag >= 0xe0) {
            return $tag - 256;
        }

        [$kind, $size] = match (true) {
            $tag < 0x90 => ['map', $tag & 15],
            $tag < 0xa0 => ['array', $tag & 15],
            $tag < 0xc0 => ['text', $tag & 31],
            $tag === 0xc0 => ['nil', 0],
            $tag === 0xc2, $tag === 0xc3 => ['bool', $tag & 1],
            $tag >= 0xc4 && $tag <= 0xc6 => ['text', self::number($read, 1 << ($tag - 0xc4))],
            $tag >= 0xcc && $tag <= 0xcf => ['number', self::number($read, 1 << ($tag - 0xcc))],
            $tag >= 0xd0 && $tag <= 0xd3 => ['number', self::signed($read, 1 << ($tag - 0xd0))],
            $tag >= 0xd9 && $tag <= 0xdb => ['text', self::number($read, 1 << ($tag - 0xd9))],
            $tag === 0xdc, $tag === 0xdd => ['array', self::number($read, 2 << ($tag - 0xdc))],
            $tag === 0xde, $tag === 0xdf => ['map', self::number($read, 2 << ($tag - 0xde))],
            default => throw new Unavailable('protocol', sprintf('an answer has the byte 0x%02x', $tag), true),
        };
        if ($kind === 'number') {
            return $size;
        }
        if ($kind === 'nil' || $kind === 'bool') {
            return $kind === 'nil' ? null : $size === 1;
        }

        // Each member has at least a byte, so a size that cannot arrive is refused before anything is kept for it.
        if ($size > $budget) {
            throw new Unavailable('protocol', 'an answer is longer than 4 MiB', true);
        }
        if ($kind === 'text') {
            $budget -= $size;
            return $size === 0 ? '' : $read($size);
        }
        if ($size > self::MEMBERS_MAX) {
            throw new Unavailable('protocol', 'an answer has more than 65536 members', true);
        }
        $result = [];
        for ($i = 0; $i < $size; $i++) {
            $name = $kind === 'map' ? self::unpackValue($read, $budget, $depth + 1) : $i;
            $member = self::unpackValue($read, $budget, $depth + 1);
            if (is_int($name) || is_string($name)) {
                $result[$name] = $member;
            }
        }
        return $result;
    }

    private static function number(callable $read, int $width): int
    {
        $number = 0;
        foreach (str_split($read($width)) as $byte) {
            $number = ($number << 8) | ord($byte);
        }
        if ($number < 0) {
            throw new Unavailable('protocol', 'an answer has a number above 2^63', true);
        }
        return $number;
    }

    private static function signed(callable $read, int $width): int
    {
        $number = 0;
        foreach (str_split($read($width)) as $byte) {
            $number = ($number << 8) | ord($byte);
        }
        return $width < 8 && $number >> (8 * $width - 1) ? $number - (1 << (8 * $width)) : $number;
    }
}

/** A slot of a concurrency limit; it ends with release(), with the client, or with the process. */
final class Slot
{
    private bool $isReleased = false;

    /** @internal */
    public function __construct(private Client $client, private int $connection, private string $id)
    {
    }

    /** @return bool true: the daemon freed it now; false: it was released before, or lost */
    public function release(?float $timeout = null): bool
    {
        if ($this->isReleased || $this->isLost()) {
            return false;
        }
        try {
            $answer = $this->client->call('release', [$this->id], $timeout);
        } catch (Unavailable $failure) {
            return $failure->kind === 'lost' ? false : throw $failure; // it ended with its connection
        }
        $this->isReleased = true;
        return ($answer['released'] ?? false) === true;
    }

    /** Its connection has ended, and the slot with it. */
    public function isLost(): bool
    {
        return !$this->isReleased && $this->connection !== $this->client->connectionNumber();
    }

    public function isHeld(): bool
    {
        return !$this->isReleased && !$this->isLost();
    }
}

/** A reservation: settle() or cancel() it once; otherwise its units come back at the end of its time limit. */
final class Reservation
{
    /** @internal */
    public function __construct(private Client $client, public readonly string $token)
    {
    }

    public function settle(int $actual, ?float $timeout = null): Decision
    {
        return Decision::of($this->client->call('settle', [$this->token, $actual], $timeout), 0);
    }

    public function cancel(?float $timeout = null): Decision
    {
        return Decision::of($this->client->call('cancel', [$this->token], $timeout), 0);
    }
}

/**
 * One connection to the daemon, with one call under way at a time.
 *
 * A policy is a name, or the settings of an inline one. Every method may throw Unavailable and Refused.
 */
class Client
{
    private const PATH_BYTES_MAX = 107; // of a Unix socket
    private const KEY_BYTES_MAX = 512;
    private const KEY_BYTES_KEPT = 64;
    private const BREAKER_TIMEOUTS = 3;
    private const BREAKER_S = 1.0;
    private const BACKOFF_FIRST_S = 0.01;
    private const BACKOFF_MAX_S = 0.25;
    private const KINDS = [
        'OVERLOADED' => 'overloaded', 'SHUTTING_DOWN' => 'shutting_down', 'STORE_UNAVAILABLE' => 'store_unavailable',
    ];

    private readonly string $path;
    /** @var resource|null owned */
    private $stream = null;
    private int $pid = 0;
    private int $connection = 0;
    private int $msgid = 0;
    /** bytes that have arrived and belong to no answer yet */
    private string $buffer = '';
    /** @var array<int, string> methods of calls whose answer is late, by msgid */
    private array $late = [];

    private int $timeouts = 0;
    private float $closedUntil = 0;
    private float $backoff = 0;
    private float $retryAt = 0;
    /** @var array{checks: int, allowed: int, denied: int, refused: int, unavailable: array<string, int>} */
    private array $counters = ['checks' => 0, 'allowed' => 0, 'denied' => 0, 'refused' => 0, 'unavailable' => []];

    /**
     * @param ?string $socket path; default: RATELIMIT_SOCKET, else /run/ratelimitd/ratelimitd.sock
     * @param float $timeout seconds for a whole call, connecting included
     */
    public function __construct(?string $socket = null, private readonly float $timeout = 0.25)
    {
        if ($timeout <= 0) {
            throw new \InvalidArgumentException('timeout must be above 0 seconds');
        }
        $this->path = $socket ?? (getenv('RATELIMIT_SOCKET') ?: '/run/ratelimitd/ratelimitd.sock');
        if ($this->path === '' || strlen($this->path) > self::PATH_BYTES_MAX) {
            throw new \InvalidArgumentException('a socket path has 1 to ' . self::PATH_BYTES_MAX . " bytes: '{$this->path}'");
        }
    }

    public function __destruct()
    {
        $this->close();
    }

    /** Ends the connection, and with it all slots. The next call connects again. */
    public function close(): void
    {
        if ($this->stream !== null) {
            fclose($this->stream);
        }
        $this->stream = null;
        $this->buffer = '';
        $this->late = [];
        $this->connection++;
    }

    /** @internal which connection this is; a slot belongs to one */
    public function connectionNumber(): int
    {
        $this->leaveParent();
        return $this->connection;
    }

    // ---- calls

    /**
     * May this key do this now?
     *
     * @param ?int $atMost instead of a cost: grant as many units as are available, up to this number
     * @param ?int $maxWaitMs the longest acceptable delay; 0: deny instead of a delay
     * @param bool $resend make a request id, and ask again where the connection was lost
     */
    public function check(
        string|array $policy,
        string $key,
        int $cost = 1,
        ?int $atMost = null,
        ?int $maxWaitMs = null,
        ?int $deadlineMs = null,
        ?string $requestId = null,
        bool $resend = false,
        ?float $timeout = null,
    ): Decision {
        if ($resend) {
            $requestId ??= bin2hex(random_bytes(16));
        }
        $options = self::options([
            'cost' => $atMost === null ? $cost : null, 'at_most' => $atMost, 'max_wait_ms' => $maxWaitMs,
            'deadline_ms' => $deadlineMs, 'request_id' => $requestId,
        ]);
        $answer = $this->call('check', [$policy, self::key($key), $options], $timeout, $resend);
        return $this->counted(Decision::of($answer, $atMost ?? $cost));
    }

    /**
     * All are charged, or none.
     *
     * @param list<array{0: string|array, 1: string, 2?: int}> $items [policy, key, cost]
     */
    public function checkAll(
        array $items,
        ?int $deadlineMs = null,
        ?string $requestId = null,
        ?float $timeout = null,
    ): Decision {
        $options = self::options(['deadline_ms' => $deadlineMs, 'request_id' => $requestId]);
        $costs = array_map(static fn (array $item): int => $item[2] ?? 1, array_values($items));
        $answer = $this->call('check_all', [self::items($items), $options], $timeout);
        return $this->counted(Decision::of($answer, array_sum($costs), $costs));
    }

    /**
     * Each is decided by itself.
     *
     * @param list<array{0: string|array, 1: string, 2?: int}> $items [policy, key, cost]
     * @return list<Decision>
     */
    public function checkMany(array $items, ?float $timeout = null): array
    {
        $answers = $this->call('check_many', [self::items($items)], $timeout);
        if (count($answers) !== count($items)) {
            throw new Unavailable('protocol', 'not one decision for each check', true);
        }
        $decisions = [];
        foreach ($answers as $i => $answer) {
            $decisions[] = $this->counted(Decision::of(is_array($answer) ? $answer : [], $items[$i][2] ?? 1));
        }
        return $decisions;
    }

    /** The decision that a check of this cost would get now. */
    public function peek(string|array $policy, string $key, int $cost = 0, ?float $timeout = null): Decision
    {
        return Decision::of($this->call('peek', [$policy, self::key($key), $cost], $timeout), $cost);
    }

    /** @return array<string, mixed> as PROTOCOL.md describes `explain` */
    public function explain(string|array $policy, string $key, int $cost = 1, ?float $timeout = null): array
    {
        return $this->call('explain', [$policy, self::key($key), $cost], $timeout);
    }

    /** @return bool was there anything to forget? */
    public function reset(string|array $policy, string $key, ?float $timeout = null): bool
    {
        return ($this->call('reset', [$policy, self::key($key)], $timeout)['removed'] ?? false) === true;
    }

    public function refund(
        string|array $policy,
        string $key,
        int $units = 1,
        ?string $requestId = null,
        ?float $timeout = null,
    ): Decision {
        $options = self::options(['request_id' => $requestId]);
        return Decision::of($this->call('refund', [$policy, self::key($key), $units, $options], $timeout), 0);
    }

    /** @return list<array<string, mixed>> */
    public function policies(?float $timeout = null): array
    {
        return array_values($this->call('policies', [], $timeout));
    }

    /** @return array<string, mixed> */
    public function stats(?float $timeout = null): array
    {
        return $this->call('stats', [], $timeout);
    }

    /**
     * Throws Refused and names what the daemon does not have, or does not allow.
     *
     * @param string[] $policies
     * @param bool $inline are there limits that are written in the program?
     */
    public function verify(array $policies, bool $inline = false, ?float $timeout = null): void
    {
        if ($inline) {
            $this->peek(Limit::settings('1/s'), 'verify', 0, $timeout);
        }
        $missing = array_values(array_diff($policies, array_column($this->policies($timeout), 'name')));
        if ($missing !== []) {
            throw new Refused('UNKNOWN_POLICY', 'the daemon has no policy ' . implode(', ', $missing), $missing);
        }
    }

    /**
     * A slot of a concurrency limit.
     *
     * @return array{Decision, ?Slot} the slot is there if the decision allows
     */
    public function acquire(
        string|array $policy,
        string $key,
        ?int $deadlineMs = null,
        ?string $requestId = null,
        ?float $timeout = null,
    ): array {
        $options = self::options(['deadline_ms' => $deadlineMs, 'request_id' => $requestId]);
        $answer = $this->call('acquire', [$policy, self::key($key), $options], $timeout);
        $decision = $this->counted(Decision::of($answer));
        $id = self::given($decision, $answer['slot'] ?? null);
        return [$decision, $id === null ? null : new Slot($this, $this->connection, $id)];
    }

    /**
     * A reservation, for a cost that is known only afterwards.
     *
     * @param bool $clamp an estimate that the policy can never admit becomes the policy's capacity: see `granted`
     * @return array{Decision, ?Reservation} the reservation is there if the decision allows
     */
    public function reserve(
        string $policy,
        string $key,
        int $estimate,
        ?float $ttl = null,
        ?int $deadlineMs = null,
        ?string $requestId = null,
        ?float $timeout = null,
        bool $clamp = false,
    ): array {
        $options = self::options([
            'ttl_ms' => $ttl === null ? null : (int) round($ttl * 1000), 'deadline_ms' => $deadlineMs,
            'request_id' => $requestId,
        ]);
        $answer = $this->call('reserve', [$policy, self::key($key), $estimate, $options], $timeout);
        $decision = $this->counted(Decision::of($answer, $estimate));
        $isNever = !$decision->allowed && $decision->retryAfterMs < 0;
        if ($clamp && $isNever && 0 < $decision->limit && $decision->limit < $estimate) {
            return $this->reserve($policy, $key, $decision->limit, $ttl, $deadlineMs, $requestId, $timeout);
        }
        $token = self::given($decision, $answer['reservation'] ?? null);
        return [$decision, $token === null ? null : new Reservation($this, $token)];
    }

    /**
     * Runs $work while a slot is held.
     *
     * @template T
     * @param callable(): T $work
     * @return T
     * @throws Denied
     */
    public function withSlot(string|array $policy, string $key, callable $work): mixed
    {
        [$decision, $slot] = $this->acquire($policy, $key);
        if ($slot === null) {
            throw new Denied($decision);
        }
        try {
            return $work();
        } finally {
            self::quietly(static fn () => $slot->release());
        }
    }

    /**
     * Runs $work with a reservation, which it settles. One that it leaves behind with an exception is cancelled.
     *
     * @template T
     * @param callable(Reservation): T $work
     * @return T
     * @throws Denied
     */
    public function withReservation(
        string $policy,
        string $key,
        int $estimate,
        callable $work,
        ?float $ttl = null,
        bool $clamp = false,
    ): mixed {
        [$decision, $reservation] = $this->reserve($policy, $key, $estimate, $ttl, clamp: $clamp);
        if ($reservation === null) {
            throw new Denied($decision);
        }
        try {
            return $work($reservation);
        } catch (\Throwable $failure) {
            self::quietly(static fn () => $reservation->cancel());
            throw $failure;
        }
    }

    /** @return array{checks: int, allowed: int, denied: int, refused: int, unavailable: array<string, int>} */
    public function counters(): array
    {
        return $this->counters;
    }

    // ---- one call

    /** The result of a method of the protocol. @internal */
    public function call(string $method, array $params, ?float $timeout = null, bool $resend = false): array
    {
        $this->counters['checks'] += match ($method) {
            'check', 'check_all', 'acquire', 'reserve' => 1,
            'check_many' => count($params[0]),
            default => 0,
        };
        try {
            try {
                return $this->ask($method, $params, $timeout ?? $this->timeout);
            } catch (Unavailable $failure) {
                if (!$resend || $failure->kind !== 'lost') {
                    throw $failure;
                }
                return $this->ask($method, $params, $timeout ?? $this->timeout);
            }
        } catch (Unavailable $failure) {
            $this->counters['unavailable'][$failure->kind] = 1 + ($this->counters['unavailable'][$failure->kind] ?? 0);
            throw $failure;
        } catch (Refused $refusal) {
            $this->counters['refused']++;
            throw $refusal;
        }
    }

    private function counted(Decision $decision): Decision
    {
        $this->counters[$decision->allowed ? 'allowed' : 'denied']++;
        return $decision;
    }

    private function ask(string $method, array $params, float $timeout): array
    {
        $this->leaveParent();
        if (!in_array($method, ['release', 'settle', 'cancel'], true)) { // what gives back is never held back
            $this->refuseWhileClosed();
        }
        $until = self::now() + $timeout;
        $this->dropIfEnded();
        if ($method === 'release' && $this->stream === null) {
            throw new Unavailable('lost', 'the slot has ended with its connection', true);
        }
        $hello = $this->stream === null ? $this->connect($timeout) : '';

        $msgid = ++$this->msgid;
        $isSent = false;
        try {
            $this->send($hello . MessagePack::pack([0, $msgid, $method, $params]), $until);
            $isSent = true;
            [$error, $result] = $this->receive($msgid, $until);
            $this->answered();
        } catch (Unavailable $failure) {
            if ($failure->kind === 'timeout') {
                $this->timeouts++;
                $this->closedUntil = $this->timeouts >= self::BREAKER_TIMEOUTS ? self::now() + self::BREAKER_S : 0;
                $isSent ? $this->late[$msgid] = $method : $this->close();
            } else {
                $this->answered();
                $this->close();
            }
            throw $failure;
        }
        if ($error !== null) {
            throw self::failure($error);
        }
        if (!is_array($result)) {
            $this->close();
            throw new Unavailable('protocol', "an answer to $method that is not valid", true);
        }
        return $result;
    }

    private function refuseWhileClosed(): void
    {
        $now = self::now();
        if ($now < $this->closedUntil) {
            throw new Unavailable('breaker', 'no answer to ' . self::BREAKER_TIMEOUTS . ' calls in a row: not asked for a second');
        }
        if ($this->timeouts >= self::BREAKER_TIMEOUTS) {
            $this->closedUntil = $now + self::BREAKER_S; // this call is the probe
        }
        if ($this->stream === null && $now < $this->retryAt) {
            throw new Unavailable('unreachable', "cannot connect to {$this->path}: not tried again yet");
        }
    }

    private function answered(): void
    {
        $this->timeouts = 0;
        $this->closedUntil = 0;
    }

    /** After a fork the connection is the parent's. */
    private function leaveParent(): void
    {
        if ($this->stream !== null && $this->pid !== getmypid()) {
            $this->close();
        }
    }

    /** The bytes that go before the first call of a connection. */
    private function connect(float $timeout): string
    {
        $stream = @stream_socket_client('unix://' . $this->path, $number, $message, $timeout);
        if ($stream === false) {
            $this->backoff = min(self::BACKOFF_MAX_S, max(self::BACKOFF_FIRST_S, 2 * $this->backoff));
            $this->retryAt = self::now() + $this->backoff * (0.5 + mt_rand() / mt_getrandmax() / 2);
            throw new Unavailable('unreachable', "cannot connect to {$this->path}: $message");
        }
        stream_set_blocking($stream, false);
        stream_set_read_buffer($stream, 0);
        $this->stream = $stream;
        $this->pid = getmypid();
        $this->connection++;
        $this->msgid = 0;
        $this->backoff = $this->retryAt = 0;
        return MessagePack::pack([0, 0, 'hello', [['describe' => true]]]);
    }

    /** A connection that the daemon has closed while it was idle is not used; what has come late is read. */
    private function dropIfEnded(): void
    {
        if ($this->stream === null || !self::isReady($this->stream, false, 0)) {
            return;
        }
        try {
            $this->fill();
            while ($this->buffer !== '') {
                $this->next(fn (int $more): string => throw new \UnderflowException());
            }
        } catch (\UnderflowException) {
            // the rest of an answer is still on its way
        } catch (Unavailable) {
            $this->close();
        }
    }

    private function send(string $bytes, float $until): void
    {
        for ($left = $bytes; $left !== ''; $left = substr($left, $n)) {
            $maybeCharged = strlen($left) < strlen($bytes);
            if (!self::isReady($this->stream, true, $until - self::now())) {
                throw new Unavailable('timeout', 'the daemon does not read', $maybeCharged);
            }
            $n = @fwrite($this->stream, $left);
            if ($n === false) {
                throw new Unavailable('lost', 'the connection was lost', true);
            }
        }
    }

    /** @return array{mixed, mixed} error and result of the answer to $msgid */
    private function receive(int $msgid, float $until): array
    {
        $wait = function () use ($until): void {
            if (!self::isReady($this->stream, false, $until - self::now())) {
                throw new Unavailable('timeout', 'no answer in time', true);
            }
            $this->fill();
        };
        do {
            [$of, $error, $result] = $this->next($wait);
            if ($of === null) {
                $code = is_string($error) ? strstr($error, ': ', true) ?: null : null;
                throw new Unavailable('lost', 'the daemon closed the connection: ' . (is_string($error) ? $error : ''), true, $code);
            }
        } while ($of !== $msgid);
        return [$error, $result];
    }

    /**
     * The next answer: [msgid, error, result]. One that is not finished stays in the buffer. A late yes is given back.
     *
     * @param callable(int): mixed $wait called for more bytes; throws where there are none
     * @return array{?int, mixed, mixed}
     */
    private function next(callable $wait): array
    {
        $at = 0;
        $message = MessagePack::unpack(function (int $n) use (&$at, $wait): string {
            while (strlen($this->buffer) < $at + $n) {
                $wait($n);
            }
            $at += $n;
            return substr($this->buffer, $at - $n, $n);
        });
        $this->buffer = substr($this->buffer, $at);

        $isResponse = is_array($message) && count($message) === 4 && ($message[0] ?? null) === 1;
        if (!$isResponse || !(is_int($message[1]) || $message[1] === null)) {
            throw new Unavailable('protocol', 'an answer that is not a response', true);
        }
        if ($message[2] !== null && $message[3] !== null) {
            throw new Unavailable('protocol', 'an answer with an error and a result', true);
        }
        $method = $this->late[$message[1] ?? -1] ?? null;
        if ($method !== null) {
            unset($this->late[$message[1]]);
            $this->giveBack($method, is_array($message[3]) ? $message[3] : []);
        }
        return [$message[1], $message[2], $message[3]];
    }

    /** The caller has given up, and does not know that it holds this. */
    private function giveBack(string $method, array $result): void
    {
        $params = match ($method) {
            'acquire' => ['release', [$result['slot'] ?? null]],
            'reserve' => ['cancel', [$result['reservation'] ?? null]],
            default => null,
        };
        if ($params !== null && is_string($params[1][0])) {
            @fwrite($this->stream, MessagePack::pack([0, ++$this->msgid, ...$params]));
        }
    }

    private function fill(): void
    {
        $bytes = @fread($this->stream, 65536);
        if ($bytes === false || ($bytes === '' && feof($this->stream))) {
            throw new Unavailable('lost', 'the daemon closed the connection', true);
        }
        $this->buffer .= $bytes;
    }

    /** @param resource $stream */
    private static function isReady($stream, bool $toWrite, float $seconds): bool
    {
        $read = $toWrite ? null : [$stream];
        $write = $toWrite ? [$stream] : null;
        $except = null;
        $seconds = max(0.0, $seconds);
        return @stream_select($read, $write, $except, (int) $seconds, (int) (fmod($seconds, 1) * 1e6)) > 0;
    }

    private static function failure(mixed $error): \Throwable
    {
        if (!is_string($error)) {
            return new Unavailable('protocol', 'an error that is not text', true);
        }
        $code = preg_match('/^([A-Z_]+)(?:: |$)/', $error, $found) ? $found[1] : 'INTERNAL';
        $kind = self::KINDS[$code] ?? null;
        return $kind === null ? new Refused($code, $error) : new Unavailable($kind, $error, $code === 'STORE_UNAVAILABLE', $code);
    }

    /** The name of what an allowed decision gave. */
    private static function given(Decision $decision, mixed $name): ?string
    {
        if ($decision->allowed && !is_string($name)) {
            throw new Unavailable('protocol', 'an answer that allows, and gives nothing', true);
        }
        return $decision->allowed ? $name : null;
    }

    /** A key that is too long is cut, and stays different from every other. */
    private static function key(string $key): string
    {
        return strlen($key) <= self::KEY_BYTES_MAX ? $key : substr($key, 0, self::KEY_BYTES_KEPT) . '#' . hash('sha256', $key);
    }

    private static function items(array $items): array
    {
        return array_map(static fn (array $item): array => [$item[0], self::key($item[1]), $item[2] ?? 1], array_values($items));
    }

    /** Those that are given, as a map also where there are none. */
    private static function options(array $options): object
    {
        return (object) array_filter($options, static fn (mixed $value): bool => $value !== null);
    }

    private static function quietly(callable $work): void
    {
        try {
            $work();
        } catch (Unavailable | Refused) {
            // the slot ends with the connection, the reservation with its time limit
        }
    }

    private static function now(): float
    {
        return hrtime(true) / 1e9;
    }
}

/** Keys from requests. */
final class Key
{
    /**
     * The client's address: the peer's, or, where the peer is a trusted proxy, the last address of X-Forwarded-For that is
     * not. An IPv6 address counts by its first $prefix bits.
     *
     * @param string[]|int $trusted addresses and networks of your own proxies, or how many of them stand in front
     * @param string $header the one field to believe, from trusted peers only
     * @return callable(object): string of a PSR-7 server request
     */
    public static function ip(array|int $trusted = [], int $prefix = 64, string $header = 'X-Forwarded-For'): callable
    {
        return static function (object $request) use ($trusted, $prefix, $header): string {
            $peer = $request->getServerParams()['REMOTE_ADDR'] ?? null;
            return self::ofAddress($peer, $request->getHeader($header), $trusted, $prefix, $header);
        };
    }

    /**
     * @param ?string $peer the address of the connection
     * @param string[] $forwarded the values of the field, in order
     */
    public static function ofAddress(
        ?string $peer,
        array $forwarded = [],
        array|int $trusted = [],
        int $prefix = 64,
        string $header = 'X-Forwarded-For',
    ): string {
        $hops = array_map('trim', $forwarded === [] ? [] : explode(',', implode(',', $forwarded)));
        if ($header !== 'X-Forwarded-For') {
            $hops = array_slice($hops, -1);
        }
        $hops[] = $peer;
        $networks = is_int($trusted) ? [] : array_map(self::network(...), $trusted);

        $found = null;
        for ($i = count($hops) - 1, $passed = 0; $i >= 0; $i--, $passed++) {
            $bits = self::bits($hops[$i]);
            $isPeer = $i === count($hops) - 1;
            if ($bits === null && !($isPeer && is_int($trusted) && $trusted > 0)) {
                break;
            }
            $found = $bits ?? $found;
            $isTrusted = is_int($trusted) ? $passed < $trusted : self::isWithin($bits, $networks);
            if (!$isTrusted) {
                break;
            }
        }
        if ($found === null) {
            throw new \InvalidArgumentException('no address to limit by: ' . var_export($peer, true));
        }
        return self::text($found, $prefix);
    }

    /** The user, or where there is none the address; the two never meet. */
    public static function user(?string $user, string $address): string
    {
        return $user === null ? self::join('i', $address) : self::join('u', $user);
    }

    /** Parts in one key: with | between them, and escaped where they have one. */
    public static function join(string ...$parts): string
    {
        if (in_array('', $parts, true)) {
            throw new \InvalidArgumentException('a part of a key is empty');
        }
        return implode('|', array_map(static fn (string $part): string => strtr($part, ['%' => '%25', '|' => '%7C']), $parts));
    }

    /** For secrets, such as a token: 64 hex digits. */
    public static function hashed(string $secret): string
    {
        return $secret === '' ? throw new \InvalidArgumentException('an empty secret') : hash('sha256', $secret);
    }

    /** An address as 4 or 16 bytes; null if it is not one. Brackets, port and zone go; IPv4-mapped becomes IPv4. */
    private static function bits(?string $address): ?string
    {
        $text = trim($address ?? '');
        if (preg_match('/^\[([^\]]*)\](?::\d+)?$/', $text, $found) || preg_match('/^([\d.]+):\d+$/', $text, $found)) {
            $text = $found[1];
        }
        $text = preg_replace('/%.*$/', '', $text);
        $bits = filter_var($text, FILTER_VALIDATE_IP) === false ? false : inet_pton($text);
        if ($bits === false) {
            return null;
        }
        return str_starts_with($bits, str_repeat("\0", 10) . "\xff\xff") && strlen($bits) === 16 ? substr($bits, 12) : $bits;
    }

    private static function text(string $bits, int $prefix): string
    {
        if (strlen($bits) === 4) {
            return inet_ntop($bits);
        }
        return inet_ntop($bits & self::mask(16, $prefix)) . ($prefix < 128 ? "/$prefix" : '');
    }

    private static function mask(int $bytes, int $length): string
    {
        $mask = str_repeat("\xff", intdiv($length, 8)) . ($length % 8 ? chr(0xff << (8 - $length % 8) & 0xff) : '');
        return str_pad($mask, $bytes, "\0");
    }

    /** @return array{string, int} bytes and length of a network */
    private static function network(string $text): array
    {
        [$address, $length] = explode('/', $text, 2) + [1 => null];
        $bits = self::bits($address);
        if ($bits === null || ($length !== null && (!preg_match('/^\d{1,3}$/', $length) || $length > 8 * strlen($bits)))) {
            throw new \InvalidArgumentException("a trusted proxy is an address or a network, not " . var_export($text, true));
        }
        return [$bits, (int) ($length ?? 8 * strlen($bits))];
    }

    private static function isWithin(?string $bits, array $networks): bool
    {
        foreach ($networks as [$network, $length]) {
            $mask = self::mask(strlen($network), $length);
            if ($bits !== null && strlen($bits) === strlen($network) && ($bits & $mask) === ($network & $mask)) {
                return true;
            }
        }
        return false;
    }
}

/** What one endpoint is limited by: a policy by name, or a limit of its own. */
final class Limit
{
    private const UNITS = [
        'ms' => 'ms', 's' => 's', 'm' => 'm', 'h' => 'h', 'd' => 'd',
        'second' => 's', 'minute' => 'm', 'hour' => 'h', 'day' => 'd',
    ];

    /** @var string|array<string, mixed> as it is sent */
    public readonly string|array $asked;

    /**
     * @param ?string $policy the name of a policy
     * @param ?string $limit instead: such as "10/5s" or "5000/day"; the daemon must allow inline policies
     * @param ?string $name of the endpoint, for a limit of its own: equal limits share their counters
     * @param ?callable $key of the request; null: do not limit; default: Key::ip()
     * @param int|callable $cost a number, or a function of the request
     * @param ?callable $skip of the request: true lets it through without asking
     * @param string|callable|null $onError 'allow', 'deny', or a function of the failure; default: the middleware's
     * @param ?callable $chargeWhen of the answer: false gives the unit back, to count only failed logins; named policies only
     * @param bool $slot the policy is a concurrency limit: hold a slot to the end of the request; named policies only
     * @param ?string $headers ietf, legacy, both or none, for this limit; default: the middleware's
     * @param ?callable $respond of the request and the decision: the answer to a request that this limit denies; default: the
     *     middleware's
     * @param bool $enabled false: as if it were not there
     */
    public function __construct(
        ?string $policy = null,
        ?string $limit = null,
        public readonly ?string $name = null,
        public readonly mixed $key = null,
        public readonly mixed $cost = 1,
        public readonly mixed $skip = null,
        public readonly mixed $onError = null,
        public readonly mixed $chargeWhen = null,
        public readonly bool $slot = false,
        public readonly ?string $headers = null,
        public readonly mixed $respond = null,
        public readonly bool $enabled = true,
    ) {
        self::checkForm($headers);
        self::checkRule($onError);
        if (($chargeWhen !== null || $slot) && $policy === null) {
            throw new \InvalidArgumentException(($slot ? 'slot' : 'chargeWhen') . ' needs a policy by name');
        }
        if (($policy === null) === ($limit === null)) {
            throw new \InvalidArgumentException('a limit has a policy, or a limit of its own such as "10/5s"');
        }
        if ($limit !== null && ($name ?? '') === '') {
            throw new \InvalidArgumentException('a limit of its own needs a name: that of its endpoint');
        }
        $this->asked = $policy ?? self::settings($limit);
    }

    /** Is something held until the request has ended? */
    public function isHeld(): bool
    {
        return $this->slot || $this->chargeWhen !== null;
    }

    /** @internal */
    public static function checkForm(?string $headers): void
    {
        if (!in_array($headers, ['ietf', 'legacy', 'both', 'none', null], true)) {
            throw new \InvalidArgumentException("headers is ietf, legacy, both or none, not $headers");
        }
    }

    /** @internal */
    public static function checkRule(mixed $onError): void
    {
        if (!in_array($onError, ['allow', 'deny', null], true) && !is_callable($onError)) {
            throw new \InvalidArgumentException('onError is "allow", "deny" or a function');
        }
    }

    /** @return array<string, mixed> the inline policy of "10/5s" */
    public static function settings(string $text): array
    {
        $unit = null;
        if (preg_match('#^\s*([1-9]\d*)\s*/\s*([1-9]\d*)?\s*([a-z]+)\s*$#', $text, $found)) {
            $unit = self::UNITS[$found[3]] ?? self::UNITS[preg_replace('/s$/', '', $found[3])] ?? null;
        }
        if ($unit === null) {
            throw new \InvalidArgumentException(var_export($text, true) . ' is not a limit such as "10/5s" or "5000/day"');
        }
        $window = ($found[2] === '' ? '1' : $found[2]) . $unit;
        return ['algorithm' => 'fixed_window', 'limit' => (int) $found[1], 'window' => $window, 'start' => 'first_hit'];
    }
}

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

    /** Somebody counted, and the figures are meant for the caller. */
    private static function isCounted(Decision $decision): bool
    {
        return $decision->of !== null && !$decision->shadowDenied;
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

    /** A String of Structured Fields; what it cannot hold becomes "?". */
    private static function text(string $text): string
    {
        return '"' . addcslashes(preg_replace('/[^ -~]/', '?', $text), '"\\') . '"';
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
