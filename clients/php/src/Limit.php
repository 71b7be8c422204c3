<?php

declare(strict_types=1);

namespace Ratelimitd;

/** What one endpoint is limited by: a policy by name, or a limit of its own. What is wrong is refused when it is made. */
final class Limit
{
    /** What a function for a key or a policy gives for a request that is not to be limited. */
    public const NOT_LIMITED = NotLimited::NotLimited;

    private const UNITS = [
        'ms' => 'ms', 's' => 's', 'm' => 'm', 'h' => 'h', 'd' => 'd',
        'second' => 's', 'minute' => 'm', 'hour' => 'h', 'day' => 'd',
    ];
    private const UNIT = '(ms|[smhd]|(?:second|minute|hour|day)s?)';
    private const NAME = '/^[A-Za-z0-9._-]{1,64}$/D';
    private const OPTIONS = [
        'policy', 'limit', 'window', 'name', 'endpoint', 'key', 'cost', 'skip', 'onError', 'chargeWhen', 'slot', 'headers', 'respond',
        'enabled',
    ];
    /** the other settings of an inline policy, as in ratelimitd's configuration */
    private const SETTINGS = [
        'algorithm', 'limits', 'burst', 'start', 'phase', 'count_denied', 'lease', 'counts', 'penalty', 'timezone', 'week_start', 'anchor', 'max_wait', 'slot_ttl', 'by',
        'key_format', 'deadline', 'on_failure', 'idempotency_window', 'debt', 'shadow', 'local_share', 'merge_back', 'on_change', 'unlimited', 'warn_at',
        'candidate', 'overrides', 'id',
    ];
    /** settings that do not go with an id */
    private const NO_ID_WITH = ['burst', 'max_wait', 'lease', 'on_change', 'merge_back', 'debt', 'candidate', 'id'];
    private const ID_BYTES_MAX = 256;

    /** @var string|array<string, mixed>|null as it is sent; null: it depends on the request */
    public readonly string|array|null $policy;
    private readonly mixed $given;
    /** @var array<string, mixed> */
    private readonly array $settings;

    /**
     * @param mixed $policy the name of a policy, a limit such as "10/5s" or "5000/day", the settings of an inline policy, or a
     *     function of the request that gives one of these, or NOT_LIMITED; null is answered 503, as a missing key
     * @param mixed $limit instead: so many (a number, or a function of the request) ...
     * @param mixed $window ... in each of these ("5s" or "1 day", or a function of the request), from the first request on
     * @param ?string $name of a limit of its own: what header fields, bodies and logs call it
     * @param ?callable $key of the request; default: the limiter's. It gives a text or NOT_LIMITED; null and an empty text are no key:
     *     the answer is 503, unless onError: 'allow' stands at this limit
     * @param int|callable $cost a number, or a function of the request
     * @param ?callable $skip of the request: true lets it through without asking
     * @param string|callable|null $onError 'allow', 'deny', or a function of the failure; default: the limiter's
     * @param ?callable $chargeWhen of the answer and the request: false gives the cost back, to count only failed logins; a
     *     number is charged in place of the cost
     * @param bool $slot the policy is a concurrency limit: hold a slot to the end of the request
     * @param ?string $headers ietf, legacy, both or none, for this limit; default: the limiter's
     * @param ?callable $respond of the request and the decision: the answer to a request that this limit denies; default: the
     *     limiter's
     * @param bool $enabled false: as if it were not there
     * @param ?string $endpoint of a limit of its own: the name of the endpoint, in place of its route; with one name, endpoints share
     *     their counters
     * @param mixed ...$settings other settings of an inline policy, such as algorithm: 'token_bucket', burst: 20
     */
    public function __construct(
        mixed $policy = null,
        private readonly mixed $limit = null,
        private readonly mixed $window = null,
        private readonly mixed $name = null,
        public readonly mixed $key = null,
        public readonly mixed $cost = 1,
        public readonly mixed $skip = null,
        public readonly mixed $onError = null,
        public readonly mixed $chargeWhen = null,
        public readonly mixed $slot = false,
        public readonly mixed $headers = null,
        public readonly mixed $respond = null,
        public readonly mixed $enabled = true,
        public readonly mixed $endpoint = null,
        mixed ...$settings,
    ) {
        $this->given = $policy;
        $this->settings = $settings;
        $this->checkPolicy();
        $this->checkOptions();
        $depends = array_filter([$policy, $limit, $window], self::isFunction(...)) !== [];
        $this->policy = $depends ? null : $this->made($policy, $limit, $window);
    }

    /** A limit by what stands in a route: the name of a policy, or "10/5s". */
    public static function of(self|string $given): self
    {
        return is_string($given) ? new self($given) : $given;
    }

    /** Is something held until the request has ended? */
    public function isHeld(): bool
    {
        return $this->slot || $this->chargeWhen !== null;
    }

    /** Are there settings in place of a policy's name, as far as it is known without a request? */
    public function isInline(): bool
    {
        return is_array($this->policy) || ($this->policy === null && !self::isFunction($this->given));
    }

    /** May its number be another one in the next request? */
    public function isMoving(): bool
    {
        return self::isFunction($this->limit) || self::isFunction($this->given);
    }

    /** For `skip`: OPTIONS with Origin and Access-Control-Request-Method. Safe only where no handler answers OPTIONS. */
    public static function isPreflight(object $request): bool
    {
        return $request->getMethod() === 'OPTIONS' && Requests::lines($request, 'Origin') !== []
            && Requests::lines($request, 'Access-Control-Request-Method') !== [];
    }

    /** @return string|array<string, mixed>|NotLimited|null the policy for this request; null: its function gave none */
    public function policyFor(object $request): string|array|NotLimited|null
    {
        if ($this->policy !== null) {
            return $this->policy;
        }
        $value = static fn (mixed $part): mixed => self::isFunction($part) ? $part($request) : $part;
        $policy = $value($this->given);
        if (self::isFunction($this->given) && in_array($policy, [null, '', self::NOT_LIMITED], true)) {
            return $policy === self::NOT_LIMITED ? $policy : null;
        }
        return $this->made($policy, $value($this->limit), $value($this->window));
    }

    public function costFor(object $request): int
    {
        return self::whole('cost', is_callable($this->cost) ? ($this->cost)($request) : $this->cost);
    }

    /** @return array<string, mixed> the inline policy of "10/5s" */
    public static function settings(string $text): array
    {
        if (!preg_match('#^([1-9]\d*) */ *([1-9]\d*)? *' . self::UNIT . '$#D', $text, $found)) {
            throw new \InvalidArgumentException(self::shown($text) . ' is not a limit such as "10/5s", "100/minute" or "5000/day"');
        }
        return self::fixedWindow((int) $found[1], ($found[2] === '' ? '1' : $found[2]) . $found[3]);
    }

    /**
     * Settings with the id that lets their limit move: the name of the endpoint; of its second such limit with #2.
     *
     * @param array<string, mixed> $settings
     * @return array<string, mixed>
     * @internal
     */
    public static function withId(array $settings, string $endpoint, int $number): array
    {
        if (!self::takesId($settings)) {
            return $settings;
        }
        $id = $number === 1 ? $endpoint : "$endpoint#$number";
        if (strlen($id) > self::ID_BYTES_MAX || preg_match('/[\x00-\x1f\x7f]/', $id)) {
            $id = preg_replace('/[^ -~]/', '?', substr($id, 0, 64)) . '#' . hash('sha256', $id);
        }
        return $settings + ['id' => $id];
    }

    private static function takesId(array $settings): bool
    {
        $isLogOfDenials = ($settings['algorithm'] ?? null) === 'sliding_log' && ($settings['count_denied'] ?? false);
        return ($settings['algorithm'] ?? null) !== 'leaky_bucket' && !$isLogOfDenials
            && array_intersect_key($settings, array_flip(self::NO_ID_WITH)) === []
            && !in_array(false, array_map(self::takesId(...), $settings['limits'] ?? []), true);
    }

    /** The units that chargeWhen gave, of a limit of this cost. @internal */
    public static function units(mixed $given, int $cost): int
    {
        return is_int($given) || is_float($given)
            ? self::whole('what chargeWhen gives', is_float($given) && floor($given) === $given ? (int) $given : $given) : ($given ? $cost : 0);
    }

    /** @internal */
    public static function checkForm(mixed $headers): void
    {
        if (!in_array($headers, ['ietf', 'legacy', 'both', 'none', null], true)) {
            throw new \InvalidArgumentException('headers is ietf, legacy, both or none, not ' . self::shown($headers));
        }
    }

    /** @internal */
    public static function checkRule(mixed $onError): void
    {
        if (!in_array($onError, ['allow', 'deny', null], true) && !is_callable($onError)) {
            throw new \InvalidArgumentException('onError is "allow", "deny" or a function, not ' . self::shown($onError));
        }
    }

    /** @internal */
    public static function checkFunction(string $name, mixed $value): void
    {
        if ($value !== null && !is_callable($value)) {
            throw new \InvalidArgumentException("$name is a function, not " . self::shown($value));
        }
    }

    private function checkPolicy(): void
    {
        foreach (array_keys($this->settings) as $name) {
            in_array($name, self::SETTINGS, true) || self::refuseUnknown((string) $name);
        }
        $own = array_keys(array_filter(['limit' => $this->limit, 'window' => $this->window] + $this->settings, static fn ($one) => $one !== null));
        if ($this->given === null && $this->limit === null && !isset($this->settings['limits'])) {
            throw new \InvalidArgumentException('a limit needs the name of a policy, a limit such as "10/5s", or limit and window');
        }
        if ($this->given !== null && $own !== []) {
            throw new \InvalidArgumentException('a policy and settings of its own (' . implode(', ', $own) . ') cannot go together');
        }
        if ($this->name !== null) {
            Client::nameOf(['name' => $this->name]);
            if (is_string($this->given) && preg_match(self::NAME, $this->given)) {
                throw new \InvalidArgumentException("name: the policy '{$this->given}' has a name already");
            }
        }
        if ($this->given === null && $own === ['limit']) {
            throw new \InvalidArgumentException('limit needs a window');
        }
        $this->limit === null || self::isFunction($this->limit) || self::whole('limit', $this->limit);
        $this->window === null || self::isFunction($this->window) || $this->checkedWindow($this->window);
    }

    private function checkOptions(): void
    {
        is_callable($this->cost) || self::whole('cost', $this->cost);
        foreach (['key', 'skip', 'chargeWhen', 'respond'] as $name) {
            self::checkFunction($name, $this->$name);
        }
        foreach (['slot', 'enabled'] as $name) {
            if (!is_bool($this->$name)) {
                throw new \InvalidArgumentException("$name is true or false, not " . self::shown($this->$name));
            }
        }
        if ($this->endpoint !== null && (!is_string($this->endpoint) || $this->endpoint === '')) {
            throw new \InvalidArgumentException('endpoint is a text, not ' . self::shown($this->endpoint));
        }
        self::checkForm($this->headers);
        self::checkRule($this->onError);
        if ($this->slot && $this->chargeWhen !== null) {
            throw new \InvalidArgumentException('a slot is not charged: chargeWhen does not go with slot');
        }
    }

    /** @return string|array<string, mixed> the policy of these values, which functions may have given */
    private function made(mixed $policy, mixed $limit, mixed $window): string|array
    {
        if ($policy !== null) {
            $found = match (true) {
                is_string($policy) && preg_match(self::NAME, $policy) === 1 => $policy,
                is_string($policy) && str_contains($policy, '/') => self::settings($policy),
                is_array($policy) && $policy !== [] && !array_is_list($policy) => $policy,
                default => throw new \InvalidArgumentException(self::shown($policy)
                    . ' is neither the name of a policy (letters, digits, ".", "_", "-"), a limit such as "10/5s", nor settings'),
            };
        } elseif ($this->settings === []) {
            $found = self::fixedWindow(self::whole('limit', $limit), $this->checkedWindow($window));
        } else {
            $limit === null || self::whole('limit', $limit);
            $window === null || $this->checkedWindow($window);
            $found = array_filter(['limit' => $limit, 'window' => $window], static fn ($one) => $one !== null) + $this->settings;
        }
        return $this->name === null || is_string($found) ? $found : ['name' => $this->name] + $found;
    }

    private function checkedWindow(mixed $window): string
    {
        $isText = is_string($window) && $window !== '';
        if (!$isText || (!isset($this->settings['algorithm']) && !preg_match('/^[1-9]\d* *' . self::UNIT . '$/D', $window))) {
            $units = implode(', ', array_keys(self::UNITS));
            throw new \InvalidArgumentException("window is a text such as \"5s\" or \"1 minute\", with one of $units, not " . self::shown($window));
        }
        return $window;
    }

    /** @return array<string, mixed> */
    private static function fixedWindow(int $limit, string $window): array
    {
        preg_match('/^(\d+) *([a-z]+)$/', $window, $found);
        $unit = self::UNITS[$found[2]] ?? self::UNITS[rtrim($found[2], 's')];
        return ['algorithm' => 'fixed_window', 'limit' => $limit, 'window' => $found[1] . $unit, 'start' => 'first_hit'];
    }

    private static function whole(string $name, mixed $number): int
    {
        if (!is_int($number) || $number < 0) {
            throw new \InvalidArgumentException("$name is a whole number from 0 on, not " . self::shown($number));
        }
        return $number;
    }

    private static function refuseUnknown(string $name): never
    {
        $plain = static fn (string $one): string => strtolower(strtr($one, ['_' => '']));
        $known = [...self::OPTIONS, ...self::SETTINGS];
        usort($known, static fn (string $a, string $b): int => levenshtein($plain($name), $plain($a)) <=> levenshtein($plain($name), $plain($b)));
        $isNear = levenshtein($plain($name), $plain($known[0])) <= 2;
        throw new \InvalidArgumentException("a limit has no option $name: "
            . ($isNear ? "did you mean {$known[0]}?" : 'there are ' . implode(', ', $known)));
    }

    /** A text is never a function here: `login` may be the name of a policy, and of a function of the program too. */
    private static function isFunction(mixed $value): bool
    {
        return !is_string($value) && is_callable($value);
    }

    private static function shown(mixed $value): string
    {
        return is_scalar($value) || $value === null
            ? (string) json_encode($value, JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE) : get_debug_type($value);
    }
}
