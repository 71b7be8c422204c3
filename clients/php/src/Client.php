<?php

declare(strict_types=1);

namespace Ratelimitd;

/**
 * Asks the ratelimitd of this host: one connection, with one call under way at a time. No extension, PHP 8.1 or newer.
 *
 * It connects when it is first asked, and keeps that connection until it is destroyed: under PHP-FPM, to the end of the request.
 * Durations are whole milliseconds in names that end in Ms, and seconds elsewhere. A policy is a name, or the settings of an inline one. Every method may throw Unavailable and Refused.
 */
class Client
{
    private const PATH_BYTES_MAX = 107; // of a Unix socket
    private const KEY_BYTES_MAX = 512;
    private const KEY_BYTES_KEPT = 64;
    private const BACKOFF_FIRST_S = 0.01;
    private const BACKOFF_MAX_S = 0.25;
    private const NAME = '/^(?!inline-)[A-Za-z0-9._-]{1,64}$/D';
    private const READS_MAX = 1024;
    private const LATE_READS_MAX = 4; // of 64 KiB each
    private const LATE_S = 0.05; // for an answer that arrived in time, and is still being read
    private const READS_BY_CLOCK = 1024; // parts of an answer between two looks at the clock
    private const SELECTS_MAX = 100;
    private const ENDING = ['release', 'settle', 'cancel']; // always tried: what gives back is never held back
    private const KINDS = [
        'OVERLOADED' => 'overloaded', 'SHUTTING_DOWN' => 'shutting_down', 'STORE_UNAVAILABLE' => 'store_unavailable',
    ];

    /** @internal */
    public readonly string $path;
    /** @var resource|null owned */
    private $stream = null;
    private int $pid = 0;
    private int $connection = 0;
    private int $msgid = 0;
    private int $partsRead = 0;
    /** bytes that have arrived and belong to no answer yet */
    private string $buffer = '';
    /** @var string[] what the daemon can do, by its answer to hello on this connection */
    private array $features = [];
    /** @var array<string, true> ids of the slots that this connection holds */
    private array $held = [];
    /** @var array<int, string> methods of calls whose answer is late and must be given back, by msgid */
    private array $late = [];

    private readonly Breaker $breaker;
    private readonly ?Denials $denials;
    private float $backoff = 0;
    private float $retryAt = 0;
    /** @var array<string, int> by name */
    private array $counters = ['checks' => 0, 'allowed' => 0, 'denied' => 0, 'remembered' => 0, 'refused' => 0];
    /** @var array<string, int> by kind */
    private array $unavailable = [];

    /**
     * @param ?string $socket path; default: RATELIMIT_SOCKET, else /run/ratelimitd/ratelimitd.sock
     * @param float $timeout seconds for a whole call, connecting included
     * @param float $rememberDenials seconds for which a denied check is denied again without asking; 0: never. Under PHP-FPM
     *     the workers remember together in APCu; without it each request for itself. Not for policies with count_denied
     * @param ?callable $onDecision called with policy, key and decision after each decision
     * @param ?callable $log of a line of text; default: error_log
     */
    public function __construct(
        ?string $socket = null,
        private readonly float $timeout = 0.25,
        float $rememberDenials = 0,
        private readonly mixed $onDecision = null,
        private readonly mixed $log = null,
    ) {
        self::checkTimeout($timeout);
        if (!($rememberDenials >= 0)) {
            throw new \InvalidArgumentException('rememberDenials is 0 or a number of seconds');
        }
        foreach (['onDecision' => $onDecision, 'log' => $log] as $name => $function) {
            if ($function !== null && !is_callable($function)) {
                throw new \InvalidArgumentException("$name is a function");
            }
        }
        $this->path = $socket ?? (getenv('RATELIMIT_SOCKET') ?: '/run/ratelimitd/ratelimitd.sock');
        if ($this->path === '' || strlen($this->path) > self::PATH_BYTES_MAX) {
            throw new \InvalidArgumentException('a socket path has 1 to ' . self::PATH_BYTES_MAX . " bytes: '{$this->path}'");
        }
        $this->breaker = new Breaker($this->path);
        $this->denials = $rememberDenials > 0 ? new Denials((int) ceil($rememberDenials * 1000), $this->path) : null;
    }

    private static function checkTimeout(float $timeout): void
    {
        if (!($timeout > 0 && $timeout < \INF)) {
            throw new \InvalidArgumentException("timeout is a number of seconds above 0, and not endless: $timeout");
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
        $this->features = $this->held = $this->late = [];
        $this->connection++;
    }

    /** Has the daemon listed this feature on the connection in use? A new connection does not know yet. @internal */
    public function has(string $feature): bool
    {
        return in_array($feature, $this->features, true);
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
        $same = $this->denials === null || $atMost !== null || $requestId !== null ? null
            : Denials::same(Denials::frozen($policy), $key, $cost, $maxWaitMs);
        $known = $this->remembered($same);
        if ($known !== null) {
            return $known;
        }
        $options = self::options([
            'cost' => $atMost === null ? $cost : null, 'at_most' => $atMost, 'max_wait_ms' => $maxWaitMs,
            'deadline_ms' => $deadlineMs, 'request_id' => $requestId,
        ]);
        $name = self::nameOf($policy);
        $answer = $this->call('check', [$policy, self::key($key), $options], $timeout, $resend);
        $decision = $this->decided([[$policy, $key]], Decision::of(Decision::named($answer, [$name]), $atMost ?? $cost));
        return $this->remember($same, [[$policy, $key]], $decision);
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
        $items = array_values($items);
        $names = array_map(static fn (array $item): ?string => self::nameOf($item[0]), $items);
        $costs = array_map(static fn (array $item): int => $item[2] ?? 1, $items);
        $same = $this->denials === null || $requestId !== null ? null : Denials::same(...array_map(
            static fn (array $item): array => [Denials::frozen($item[0]), $item[1], $item[2] ?? 1],
            $items,
        ));
        $known = $this->remembered($same);
        if ($known !== null) {
            return $known;
        }
        $options = self::options(['deadline_ms' => $deadlineMs, 'request_id' => $requestId]);
        $answer = $this->call('check_all', [self::items($items), $options], $timeout);
        $decision = Decision::of(Decision::named($answer, $names), array_sum($costs), $costs);
        $asked = array_map(static fn (array $item): array => [$item[0], $item[1]], $items);
        return $this->remember($same, $asked, $this->decided($asked, $decision));
    }

    /**
     * Each is decided by itself.
     *
     * @param list<array{0: string|array, 1: string, 2?: int}> $items [policy, key, cost]
     * @return list<Decision>
     */
    public function checkMany(array $items, ?float $timeout = null): array
    {
        $items = array_values($items);
        $names = array_map(static fn (array $item): ?string => self::nameOf($item[0]), $items);
        $answers = $this->call('check_many', [self::items($items)], $timeout);
        if (count($answers) !== count($items)) {
            throw new Unavailable('protocol', 'not one decision for each check', true);
        }
        $decisions = [];
        foreach (array_values($answers) as $i => $answer) {
            $decision = Decision::of(Decision::named(is_array($answer) ? $answer : [], [$names[$i]]), $items[$i][2] ?? 1);
            $decisions[] = $this->decided([[$items[$i][0], $items[$i][1]]], $decision);
        }
        return $decisions;
    }

    /** The decision that a check of this cost would get now. */
    public function peek(string|array $policy, string $key, int $cost = 0, ?float $timeout = null): Decision
    {
        $name = self::nameOf($policy);
        return Decision::of(Decision::named($this->call('peek', [$policy, self::key($key), $cost], $timeout), [$name]), $cost);
    }

    /** @return array<string, mixed> as PROTOCOL.md describes `explain` */
    public function explain(string|array $policy, string $key, int $cost = 1, ?float $timeout = null): array
    {
        return $this->call('explain', [$policy, self::key($key), $cost], $timeout);
    }

    /** @return bool was there anything to forget? */
    public function reset(string|array $policy, string $key, ?float $timeout = null): bool
    {
        try {
            return ($this->call('reset', [$policy, self::key($key)], $timeout)['removed'] ?? false) === true;
        } finally {
            $this->denials?->forget($policy, $key);
        }
    }

    public function refund(
        string|array $policy,
        string $key,
        int $units = 1,
        ?string $requestId = null,
        ?float $timeout = null,
    ): Decision {
        $options = self::options(['request_id' => $requestId]);
        $name = self::nameOf($policy);
        try {
            $answer = $this->call('refund', [$policy, self::key($key), $units, $options], $timeout);
            return Decision::of(Decision::named($answer, [$name]), 0);
        } finally {
            $this->denials?->forget($policy, $key);
        }
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
            $this->peek(['algorithm' => 'fixed_window', 'limit' => 1, 'window' => '1s'], 'verify', 0, $timeout);
        }
        $known = $this->policies($timeout);
        $missing = array_values(array_diff(array_unique($policies), array_column($known, 'name')));
        if ($missing !== []) {
            throw new Refused('UNKNOWN_POLICY', 'the daemon has no policy ' . implode(', ', $missing), $missing);
        }
        $counting = array_filter($known, static fn (array $one): bool => in_array($one['name'] ?? null, $policies, true)
            && in_array(true, array_column($one['limits'] ?? [], 'count_denied'), true));
        if ($this->denials !== null && $counting !== []) {
            $names = implode(', ', array_column($counting, 'name'));
            $this->write("rememberDenials is not for policies with count_denied: $names");
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
        $name = self::nameOf($policy);
        $answer = $this->call('acquire', [$policy, self::key($key), $options], $timeout);
        $decision = Decision::of(Decision::named($answer, [$name]));
        $id = self::given($decision, $answer['slot'] ?? null);
        if ($id === null) {
            return [$this->decided([[$policy, $key]], $decision), null];
        }
        $this->held[$id] = true;
        $slot = new Slot($this, $this->connection, $id);
        return [$this->decided([[$policy, $key]], $decision), $slot];
    }

    /** @internal for Slot */
    public function release(string $id, ?float $timeout): bool
    {
        unset($this->held[$id]);
        try {
            return ($this->call('release', [$id], $timeout)['released'] ?? false) === true;
        } catch (Unavailable | Refused $failure) {
            if (!$failure instanceof Unavailable || $failure->kind !== 'timeout') {
                $this->close(); // so that no slot stays taken without an owner
            }
            return false;
        }
    }

    /**
     * A reservation, for a cost that is known only afterwards.
     *
     * @param bool $clamp an estimate that the policy can never admit becomes the policy's capacity: see `granted`
     * @return array{Decision, ?Reservation} the reservation is there if the decision allows
     */
    public function reserve(
        string|array $policy,
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
        $name = self::nameOf($policy);
        $answer = $this->call('reserve', [$policy, self::key($key), $estimate, $options], $timeout);
        $decision = Decision::of(Decision::named($answer, [$name]), $estimate);
        $token = self::given($decision, $answer['reservation'] ?? null);
        $this->decided([[$policy, $key]], $decision);
        $isNever = !$decision->allowed && $decision->retryAfterMs < 0;
        if ($clamp && $isNever && 0 < $decision->limit && $decision->limit < $estimate) {
            return $this->reserve($policy, $key, $decision->limit, $ttl, $deadlineMs, $requestId, $timeout);
        }
        return [$decision, $token === null ? null : new Reservation($this, $token)];
    }

    /** Ends the reservation with this token, wherever it was made: $actual units were used. */
    public function settle(string $token, int $actual, ?float $timeout = null): Decision
    {
        return Decision::of($this->call('settle', [$token, $actual], $timeout), 0);
    }

    /** Ends the reservation with this token: nothing was used. */
    public function cancel(string $token, ?float $timeout = null): Decision
    {
        return Decision::of($this->call('cancel', [$token], $timeout), 0);
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
            $slot->release();
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
            try {
                $reservation->cancel();
            } catch (Unavailable | Refused) {
                // its units come back at the end of its time limit
            }
            throw $failure;
        }
    }

    /** @return array<string, int|array<string, int>> checks, allowed, denied, remembered, refused, and unavailable by kind */
    public function counters(): array
    {
        return [...$this->counters, 'unavailable' => $this->unavailable];
    }

    /** @param list<array{string|array, string}> $asked policies and keys */
    private function decided(array $asked, Decision $decision): Decision
    {
        foreach ($decision->members ?: [$decision] as $i => $one) {
            $this->counters[$one->allowed ? 'allowed' : 'denied']++;
            if ($this->onDecision !== null) {
                try {
                    ($this->onDecision)($asked[$i][0], $asked[$i][1], $one);
                } catch (\Throwable $failure) { // a hook that fails must not lose what the daemon has granted
                    $this->write("onDecision failed: {$failure->getMessage()}");
                }
            }
        }
        return $decision;
    }

    private function remembered(?string $same): ?Decision
    {
        $found = $same === null ? null : $this->denials->find($same);
        if ($found === null) {
            return null;
        }
        [$asked, $decision] = $found;
        $this->counters['checks'] += count($asked);
        $this->counters['remembered']++;
        return $this->decided($asked, $decision);
    }

    /** @param list<array{string|array, string}> $asked policies and keys */
    private function remember(?string $same, array $asked, Decision $decision): Decision
    {
        if ($same !== null) {
            $this->denials->put($same, $asked, $decision);
        }
        return $decision;
    }

    private function write(string $line): void
    {
        $this->log === null ? error_log("ratelimitd: $line") : ($this->log)($line);
    }

    // ---- one call

    /** The result of a method of the protocol. @internal */
    public function call(string $method, array $params, ?float $timeout = null, bool $resend = false): array
    {
        $timeout === null || self::checkTimeout($timeout);
        $this->counters['checks'] += match ($method) {
            'check', 'acquire', 'reserve' => 1,
            'check_many', 'check_all' => count($params[0]),
            default => 0,
        };
        try {
            return $this->exchange($method, $params, self::now() + ($timeout ?? $this->timeout), $resend);
        } catch (Unavailable $failure) {
            $this->unavailable[$failure->kind] = 1 + ($this->unavailable[$failure->kind] ?? 0);
            throw $failure;
        } catch (Refused $refusal) {
            $this->counters['refused']++;
            throw $refusal;
        }
    }

    private function exchange(string $method, array $params, float $until, bool $resend): array
    {
        try {
            return $this->attempt($method, $params, $until);
        } catch (Unavailable $failure) {
            if (!$resend || $failure->kind !== 'lost' || self::now() >= $until) {
                throw $failure;
            }
        }
        try {
            return $this->attempt($method, $params, $until);
        } catch (Unavailable $failure) {
            throw new Unavailable($failure->kind, $failure->getMessage(), true, $failure->rpcCode); // by the first attempt
        }
    }

    private function attempt(string $method, array $params, float $until): array
    {
        $this->leaveParent();
        $isEnding = in_array($method, self::ENDING, true);
        $isEnding || $this->refuseWhileClosed();
        $this->dropIfEnded($until);
        $wasUsed = $this->stream !== null;
        if ($method === 'release' && !$wasUsed) {
            throw new Unavailable('lost', 'the slot has ended with its connection', true);
        }
        $hello = $wasUsed ? '' : $this->connect($until);

        $msgid = ++$this->msgid;
        $isSent = false;
        try {
            if ($hello !== '' && self::hasId($params)) { // it may only be sent to a daemon that has listed it
                $this->send($hello, $until);
                $this->receive(0, $until);
                $hello = '';
            }
            $this->send($hello . MessagePack::pack([0, $msgid, $method, $this->known($params)]), $until);
            $isSent = true;
            [$error, $result] = $this->receive($msgid, $until);
            $this->breaker->answered();
        } catch (NeverSent $failure) {
            $this->close();
            if ($method === 'release') {
                throw new Unavailable('lost', 'the slot has ended with its connection', true);
            }
            if ($wasUsed && self::now() < $until) { // this connection had ended; a new one shows how the daemon is
                return $this->attempt($method, $params, $until);
            }
            throw new Unavailable('unreachable', $failure->getMessage());
        } catch (Unavailable $failure) {
            if ($failure->kind === 'timeout') {
                $this->breaker->timedOut();
                $isSent ? $this->giveUp($msgid, $method) : $this->close();
            } else {
                $this->breaker->answered();
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
        if ($this->stream === null && self::now() < $this->retryAt) {
            throw new Unavailable('unreachable', "cannot connect to {$this->path}: not tried again yet");
        }
        if (!$this->breaker->admits()) {
            throw new Unavailable('breaker', 'no answer to three calls in a row: not asked for a second');
        }
    }

    /** No caller waits for the answer any more, and a yes must not stay taken. */
    private function giveUp(int $msgid, string $method): void
    {
        if (!in_array($method, ['acquire', 'reserve'], true)) {
            return;
        }
        if ($this->has('abandon')) {
            $this->post([2, 'abandon', [$msgid]]);
        } elseif ($this->held === []) {
            $this->close(); // the client does not read between calls; the daemon takes back what it grants
        } else {
            $this->late[$msgid] = $method;
        }
    }

    /** Does one of the policies have an id? */
    private static function hasId(array $params): bool
    {
        $policy = $params[0] ?? null;
        if (!is_array($policy)) {
            return false;
        }
        return array_is_list($policy) ? in_array(true, array_map(self::hasId(...), array_filter($policy, is_array(...))), true)
            : isset($policy['id']);
    }

    /** The parameters for this daemon: an older one does not know names and ids of inline policies. */
    private function known(array $params): array
    {
        if ($params === [] || !is_array($params[0])) {
            return $params;
        }
        if (array_is_list($params[0])) { // the members of check_all and check_many
            $params[0] = array_map($this->known(...), $params[0]);
            return $params;
        }
        foreach (['name', 'id'] as $label) {
            if (!$this->has($label)) {
                unset($params[0][$label]);
            }
        }
        return $params;
    }

    /** After a fork the connection is the parent's. */
    private function leaveParent(): void
    {
        if ($this->stream !== null && $this->pid !== getmypid()) {
            $this->close();
        }
    }

    /** The bytes that go before the first call of a connection. */
    private function connect(float $until): string
    {
        $stream = @stream_socket_client('unix://' . $this->path, $number, $message, max(0.001, $until - self::now()));
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
    private function dropIfEnded(float $until): void
    {
        for ($reads = 0; $reads < self::READS_MAX && $this->stream !== null && self::isReady($this->stream, false, 0); $reads++) {
            try {
                self::refuseIfOver($until, false);
                $this->fill();
                while ($this->buffer !== '') {
                    [$of] = $this->next(static fn (int $more): never => throw new \UnderflowException(), $until, false);
                    $of ?? throw new Unavailable('lost', 'the daemon closes the connection', true);
                }
            } catch (\UnderflowException) {
                // the rest of an answer is still on its way
            } catch (Unavailable $failure) {
                $this->close();
                if ($failure->kind === 'timeout') { // late bytes that do not end take the time of this call
                    $this->breaker->timedOut();
                    throw $failure;
                }
            }
        }
    }

    private function send(string $bytes, float $until): void
    {
        for ($left = $bytes; $left !== ''; $left = substr($left, $n)) {
            if (!self::isReady($this->stream, true, $until)) {
                throw new Unavailable('timeout', 'the daemon does not read', strlen($left) < strlen($bytes));
            }
            $n = @fwrite($this->stream, $left);
            if ($n === false) {
                throw new NeverSent('the daemon closed the connection');
            }
        }
    }

    /** A message without an answer, if that takes no time. A part of it would make the rest of the connection useless. */
    private function post(array $message): void
    {
        $bytes = MessagePack::pack($message);
        if (@fwrite($this->stream, $bytes) !== strlen($bytes)) {
            $this->close();
        }
    }

    /** @return array{mixed, mixed} error and result of the answer to $msgid */
    private function receive(int $msgid, float $until): array
    {
        $lateReads = 0; // when the time is over, what has arrived counts; what goes on arriving does not
        $wait = function () use ($until, &$lateReads): void {
            $lateReads += self::now() < $until ? 0 : 1;
            if ($this->stream === null) {
                throw new Unavailable('lost', 'the connection was lost', true);
            }
            if ($lateReads > self::LATE_READS_MAX || !self::isReady($this->stream, false, $until)) {
                throw new Unavailable('timeout', 'no answer in time', true);
            }
            $this->fill();
        };
        do {
            [$of, $error, $result] = $this->next($wait, $until + self::LATE_S, true);
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
    private function next(callable $wait, float $until, bool $isSent): array
    {
        $at = 0;
        $message = MessagePack::unpack(function (int $n) use (&$at, $wait, $until, $isSent): string {
            if (++$this->partsRead % self::READS_BY_CLOCK === 0) {
                self::refuseIfOver($until, $isSent);
            }
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
        if ($message[1] === 0 && is_array($message[3]['features'] ?? null)) { // of hello
            $this->features = array_filter($message[3]['features'], is_string(...));
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
            $this->post([0, ++$this->msgid, ...$params]);
        }
    }

    private static function refuseIfOver(float $until, bool $isSent): void
    {
        self::now() < $until || throw new Unavailable('timeout', 'bytes keep coming, and no answer in time', $isSent);
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
    private static function isReady($stream, bool $toWrite, float $until): bool
    {
        for ($tries = 0; $tries < self::SELECTS_MAX; $tries++) {
            $read = $toWrite ? null : [$stream];
            $write = $toWrite ? [$stream] : null;
            $except = null;
            $left = max(0.0, $until - self::now());
            $ready = @stream_select($read, $write, $except, (int) $left, (int) (fmod($left, 1) * 1e6));
            if ($ready !== false) { // else a signal came
                return $ready > 0;
            }
        }
        return false;
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
        if ($decision->allowed && (!is_string($name) || $name === '')) {
            throw new Unavailable('protocol', 'an answer that allows, and gives nothing', true);
        }
        return $decision->allowed ? $name : null;
    }

    /** The `name` of an inline policy. @internal */
    public static function nameOf(string|array $policy): ?string
    {
        if (is_string($policy) || !array_key_exists('name', $policy)) {
            return null;
        }
        $name = $policy['name'];
        if (!is_string($name) || !preg_match(self::NAME, $name)) {
            $given = json_encode($name, JSON_INVALID_UTF8_SUBSTITUTE);
            throw new \InvalidArgumentException("name of an inline policy: 1 to 64 letters, digits, '.', '_' or '-', not $given");
        }
        return $name;
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

    private static function now(): float
    {
        return hrtime(true) / 1e9;
    }
}
