<?php

declare(strict_types=1);

namespace Ratelimitd;

/**
 * For tests: a real ratelimitd on its memory store, whose clock stands still until advance(). It ends with stop(), or with
 * the object.
 */
final class TestDaemon
{
    public readonly string $socket;
    private readonly string $folder;
    /** @var resource|null owned */
    private $process;
    private int $nowUs = 1_800_000_000_000_000;

    /**
     * @param ?string $config text of a configuration without `listen`; null: the daemon's defaults
     * @param string $program the daemon, as found in PATH or as a path
     */
    public function __construct(?string $config = null, string $program = 'ratelimitd')
    {
        $this->folder = sys_get_temp_dir() . '/ratelimitd-' . bin2hex(random_bytes(6));
        mkdir($this->folder, 0700);
        $this->socket = "{$this->folder}/socket";
        $arguments = ['-s', $this->socket, '--test-clock'];
        if ($config !== null) {
            file_put_contents("{$this->folder}/ratelimitd.yaml", $config);
            array_push($arguments, '-c', "{$this->folder}/ratelimitd.yaml");
        }

        $log = ['file', "{$this->folder}/log", 'w'];
        $process = proc_open([$program, ...$arguments], [['file', '/dev/null', 'r'], $log, $log], $pipes);
        $this->process = $process === false ? null : $process;
        for ($tries = 0; $tries < 500 && !file_exists($this->socket); $tries++) {
            if ($this->process === null || !proc_get_status($this->process)['running']) {
                break;
            }
            usleep(10_000);
        }
        if (!file_exists($this->socket)) {
            $output = (string) @file_get_contents("{$this->folder}/log");
            $this->stop();
            throw new \RuntimeException("$program did not start: $output");
        }
        $this->setClock();
    }

    public function __destruct()
    {
        $this->stop();
    }

    public function client(): Client
    {
        return new Client($this->socket, 5.0);
    }

    /** Moves the time of the limits. */
    public function advance(float $seconds): void
    {
        $this->nowUs += (int) round($seconds * 1e6);
        $this->setClock();
    }

    public function stop(): void
    {
        if ($this->process !== null) {
            proc_terminate($this->process);
            proc_close($this->process);
            $this->process = null;
        }
        array_map(unlink(...), glob("{$this->folder}/*") ?: []);
        @rmdir($this->folder);
    }

    private function setClock(): void
    {
        $stream = stream_socket_client("unix://{$this->socket}", $number, $message, 5.0);
        fwrite($stream, MessagePack::pack([0, 1, 'test_clock', [$this->nowUs]]));
        [, , $error] = MessagePack::unpack(static fn (int $n): string => stream_get_contents($stream, $n));
        fclose($stream);
        if ($error !== null) {
            throw new \RuntimeException($error);
        }
    }
}
