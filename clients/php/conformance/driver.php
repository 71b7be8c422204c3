<?php

/** The driver of the conformance suite. PHP has one thread, so it works through the commands in turn. */

declare(strict_types=1);

use Ratelimitd\Client;
use Ratelimitd\Decision;
use Ratelimitd\FakeLimiter;
use Ratelimitd\Http;
use Ratelimitd\Key;
use Ratelimitd\Limit;
use Ratelimitd\Limiter;
use Ratelimitd\Refused;
use Ratelimitd\Slot;
use Ratelimitd\Unavailable;

require __DIR__ . '/../src/autoload.php';

const DECISION = [
    'allowed', 'limit', 'remaining', 'retryAfterMs', 'resetAfterMs', 'delayMs', 'granted', 'boundBy', 'source', 'reason',
    'policyVersion', 'shadowDenied', 'near', 'of', 'quota', 'windowMs', 'ofResetMs', 'refunded', 'charged', 'ended',
];

/** A value of the suite as a program has it. */
function plain(mixed $value): mixed
{
    if (!is_array($value)) {
        return $value;
    }
    return array_keys($value) === ['base64'] ? base64_decode($value['base64']) : array_map(plain(...), $value);
}

function shown(Decision $decision): array
{
    $answer = [];
    foreach (DECISION as $name) {
        $answer[strtolower(preg_replace('/[A-Z]/', '_$0', $name))] = $decision->$name;
    }
    $answer['members'] = array_map(shown(...), $decision->members);
    return $answer;
}

function seconds(?int $ms): ?float
{
    return $ms === null ? null : $ms / 1000;
}

/** Named arguments from a command's fields, where it has them. */
function given(array $command, array $fields): array
{
    $found = [];
    foreach ($fields as $field => $name) {
        if (isset($command[$field])) {
            $found[$name] = in_array($name, ['timeout', 'ttl', 'rememberDenials'], true) ? seconds($command[$field]) : plain($command[$field]);
        }
    }
    return $found;
}

const OPTIONS = [
    'cost' => 'cost', 'at_most' => 'atMost', 'max_wait_ms' => 'maxWaitMs', 'deadline_ms' => 'deadlineMs',
    'request_id' => 'requestId', 'resend' => 'resend', 'timeout_ms' => 'timeout', 'ttl_ms' => 'ttl',
];

/** @param string[] $fields */
function options(array $command, array $fields): array
{
    return given($command, array_intersect_key(OPTIONS, array_flip(['timeout_ms', ...$fields])));
}

function hops(array $command): array
{
    $name = $command['header'] ?? 'X-Forwarded-For';
    $lines = array_filter($command['headers'] ?? [], static fn (array $line): bool => strcasecmp($line[0], $name) === 0);
    return [$command['peer'] ?? null, array_column($lines, 1), $command['trusted_proxies'] ?? [], $command['prefix'] ?? 64, $name];
}

/** A limit by the names that the suite gives to its options. */
function limit(array $options): Limit
{
    $made = [];
    foreach ($options as $name => $value) {
        $made[['on_error' => 'onError', 'charge_when' => 'chargeWhen'][$name] ?? $name] =
            $value === ['function' => true] ? static fn () => null : $value;
    }
    return new Limit(...$made);
}

/** @var array<string, Client> $clients */
$clients = [];
/** @var array<string, object> $held slots and reservations by name */
$held = [];
$lost = [];

function say(array $answer): void
{
    fwrite(STDOUT, json_encode($answer, JSON_INVALID_UTF8_SUBSTITUTE | JSON_UNESCAPED_SLASHES) . "\n");
}

/** A lost slot is reported once, as soon as the program can see it. */
function tell_lost(): void
{
    global $held, $lost;
    foreach ($held as $name => $thing) {
        if ($thing instanceof Slot && $thing->isLost() && !isset($lost[$name])) {
            $lost[$name] = true;
            say(['event' => 'lost', 'slot' => $name]);
        }
    }
}

function carry_out(array $c): array
{
    global $clients, $held, $lost;
    $client = $clients[$c['client'] ?? ''] ?? null;
    $policy = plain($c['policy'] ?? null);
    $key = plain($c['key'] ?? null);
    switch ($c['do']) {
        case 'open':
            $named = given($c, ['timeout_ms' => 'timeout', 'remember_denials_ms' => 'rememberDenials']);
            $log = static fn (string $line) => say(['event' => 'log', 'message' => $line]);
            $clients[$c['client']] = new Client($c['socket'] ?? null, ...$named, log: $log);
            return [];
        case 'close':
            $client?->close();
            return [];
        case 'stats':
            $counters = $client->counters();
            return ['counters' => ['unavailable' => (object) $counters['unavailable']] + $counters, 'pending' => 0];
        case 'check':
            $fields = ['cost', 'at_most', 'max_wait_ms', 'deadline_ms', 'request_id', 'resend'];
            return ['decision' => shown($client->check($policy, $key, ...options($c, $fields)))];
        case 'check_all':
            return ['decision' => shown($client->checkAll(plain($c['items']), ...options($c, ['deadline_ms', 'request_id'])))];
        case 'check_many':
            return ['decisions' => array_map(shown(...), $client->checkMany(plain($c['items']), ...options($c, [])))];
        case 'peek':
            return ['decision' => shown($client->peek($policy, $key, ...options($c, ['cost'])))];
        case 'reset':
            return ['removed' => $client->reset($policy, $key, ...options($c, []))];
        case 'refund':
            return ['decision' => shown($client->refund($policy, $key, $c['units'], ...options($c, ['request_id'])))];
        case 'acquire':
        case 'reserve':
            $isSlot = $c['do'] === 'acquire';
            [$decision, $thing] = $isSlot
                ? $client->acquire($policy, $key, ...options($c, ['deadline_ms', 'request_id']))
                : $client->reserve($policy, $key, $c['estimate'], ...options($c, ['ttl_ms', 'deadline_ms', 'request_id']));
            if ($thing !== null) {
                $held[$c['as']] = $thing;
                unset($lost[$c['as']]);
            }
            return ['decision' => shown($decision), $isSlot ? 'slot' : 'reservation' => $thing !== null];
        case 'release':
            $slot = $held[$c['slot']];
            $released = $slot->release(...options($c, []));
            return ['released' => $released, 'lost' => $slot->isLost()];
        case 'slot_state':
            return ['held' => $held[$c['slot']]->isHeld(), 'lost' => $held[$c['slot']]->isLost()];
        case 'settle':
            return ['decision' => shown($held[$c['reservation']]->settle($c['actual'], ...options($c, [])))];
        case 'cancel_reservation':
            return ['decision' => shown($held[$c['reservation']]->cancel(...options($c, [])))];
        case 'verify':
            $client->verify($c['policies'], $c['inline'] ?? false, ...options($c, []));
            return [];
        case 'fake':
            $clients[$c['client']] = new FakeLimiter();
            return [];
        case 'fake_allow_all':
            $client->allowAll();
            return [];
        case 'fake_deny':
            $client->deny($policy, $c['retry_after_ms']);
            return [];
        case 'fake_unavailable':
            $client->unavailable($c['kind'] ?? 'unreachable');
            return [];
        case 'fake_calls':
            return ['calls' => $client->calls];
        case 'block_ms':
            say(['event' => 'blocking']);
            usleep(1000 * $c['ms']);
            return [];
        case 'fork':
            return forked($c['each']);
        case 'ip_key':
            return ['key' => Key::ofAddress(...hops($c))];
        case 'user_key':
            $key = Key::user($c['user'] ?? null, ($c['user'] ?? null) === null ? Key::ofAddress(...hops($c)) : '');
            return $key === '' ? throw new InvalidArgumentException('an empty user gives no key') : ['key' => $key];
        case 'join_key':
            return ['key' => Key::join(...plain($c['parts']))];
        case 'hashed_key':
            return ['key' => Key::hashed(plain($c['value']))];
        case 'parse_limit':
            return ['settings' => Limit::settings($c['text'])];
        case 'limit':
            limit($c['options']);
            return [];
        case 'endpoint_key':
            $key = Limiter::keyFor(limit($c['limit'])->policy, $c['service'] ?? '', $c['endpoint'], $key);
            return ['key' => preg_match('//u', $key) ? $key : ['base64' => base64_encode($key)]];
        case 'service_name':
            foreach (['RATELIMIT_SERVICE', 'OTEL_SERVICE_NAME'] as $name) {
                putenv(isset($c['env'][$name]) ? "$name={$c['env'][$name]}" : $name);
            }
            return ['service' => Limiter::serviceName($c['option'] ?? null, $c['own'] ?? null)[0]];
        case 'headers':
            $members = $c['decision']['members'] ?? null;
            $decision = isset($c['decision']) ? Decision::of($c['decision'], 1, $members === null ? null : array_fill(0, count($members), 1)) : null;
            $fields = $decision === null ? [] : Http::headers($decision, $c['mode'] ?? 'ietf', $c['reset'] ?? 'delta', $c['now_ms'] ?? null);
            if ($decision?->allowed) {
                return ['http_status' => null, 'headers' => $fields, 'body' => null];
            }
            [$status, $type, $body] = Http::refusal($decision, $c['accept'] ?? null);
            $fields = $decision?->source === 'deny' ? [] : $fields;
            return ['http_status' => $status, 'headers' => [...$fields, ...Http::retryAfter($decision), ['Content-Type', $type]], 'body' => $body];
    }
    return ['status' => 'unknown'];
}

function forked(array $commands): array
{
    [$mine, $childs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
    $pid = pcntl_fork();
    if ($pid === 0) {
        fwrite($childs, json_encode(array_map(answered(...), $commands), JSON_INVALID_UTF8_SUBSTITUTE));
        exit(0);
    }
    fclose($childs);
    $answers = json_decode(stream_get_contents($mine), true);
    pcntl_waitpid($pid, $status);
    return ['answers' => $answers, 'exit' => pcntl_wexitstatus($status)];
}

function answered(array $command): array
{
    $started = hrtime(true);
    try {
        $answer = ['status' => 'ok', ...carry_out($command)];
    } catch (Unavailable $failure) {
        $answer = ['status' => $failure->kind, 'code' => $failure->rpcCode, 'maybe_charged' => $failure->maybeCharged];
    } catch (Refused $failure) {
        $answer = ['status' => 'refused', 'code' => $failure->rpcCode, 'missing' => $failure->missing, 'maybe_charged' => false];
    } catch (\InvalidArgumentException | \TypeError $failure) {
        $answer = ['status' => 'argument', 'maybe_charged' => false];
    } catch (\Throwable $failure) {
        $answer = ['status' => 'bug'];
    }
    if (isset($failure)) {
        $message = strtr($failure->getMessage(), ['onError' => 'on_error', 'chargeWhen' => 'charge_when']);
        $answer['message'] = $message === '' ? get_class($failure) : $message;
    }
    return $answer + ['id' => $command['id'] ?? null, 'ms' => (hrtime(true) - $started) / 1e6];
}

say(['ready' => true, 'pid' => getmypid()]);
while (($line = fgets(STDIN)) !== false) {
    $answer = answered(json_decode($line, true));
    tell_lost();
    say($answer);
}
