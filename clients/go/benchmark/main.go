// What a check costs: through this client, on the bare socket, and with redis_rate, which asks Redis directly. Prints
// one table. The rounds of all rows alternate, so that a busy moment of the machine hits each of them.
//
// In the last part several processes check at the same time, as the workers of a service do.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
)

const (
	rounds     = 5
	roundTime  = 400 * time.Millisecond
	callers    = 64
	processes  = 4
	perProcess = 16
	keys       = 1000
)

// A way of asking. ask makes one check; it is called by several goroutines.
type way struct {
	name  string
	open  func(folder string) (ask func(key string) error, closeAll func())
	alone bool // measured with one caller only
}

var ways = []way{
	{"bare socket, memory store", bareSocket, true},
	{"this client, a remembered denial", rememberedDenial, true},
	{"this client, memory store", client("memory"), false},
	{"this client, daemon with Redis", client("redis"), false},
	{"redis_rate, Redis", redisRate, false},
}

func bareSocket(folder string) (func(string) error, func()) {
	conn, err := net.Dial("unix", filepath.Join(folder, "memory"))
	check(err)
	reader := bufio.NewReader(conn)
	return func(key string) error {
		frame := append([]byte("\x94\x00\x01\xa5check\x92\xa5bench"), byte(0xa0|len(key)))
		if _, err := conn.Write(append(frame, key...)); err != nil {
			return err
		}
		if _, err := reader.Peek(1); err != nil {
			return err
		}
		_, err := reader.Discard(reader.Buffered()) // one answer: nothing else is on its way
		return err
	}, func() { conn.Close() }
}

func client(store string) func(string) (func(string) error, func()) {
	return func(folder string) (func(string) error, func()) {
		c := ratelimit.New(ratelimit.WithSocket(filepath.Join(folder, store)), ratelimit.WithTimeout(5*time.Second))
		return func(key string) error {
			_, err := c.Check(context.Background(), "bench", key)
			return err
		}, func() { c.Close() }
	}
}

// rememberedDenial has one key, whose cost is above the limit, so it is denied for good: only the first check reaches the
// daemon.
func rememberedDenial(folder string) (func(string) error, func()) {
	c := ratelimit.New(ratelimit.WithSocket(filepath.Join(folder, "memory")), ratelimit.WithTimeout(5*time.Second),
		ratelimit.WithRememberDenials(time.Hour))
	return func(string) error {
		_, err := c.Check(context.Background(), "full", "k", ratelimit.Cost(2))
		return err
	}, func() { c.Close() }
}

func redisRate(folder string) (func(string) error, func()) {
	address := filepath.Join(folder, "redis.sock")
	connection := redis.NewClient(&redis.Options{Network: "unix", Addr: address, PoolSize: callers})
	limiter := redis_rate.NewLimiter(connection)
	limit := redis_rate.PerMinute(1_000_000)
	return func(key string) error {
		_, err := limiter.Allow(context.Background(), key, limit)
		return err
	}, func() { connection.Close() }
}

// measure has n callers ask for a while. It returns the durations of all checks.
func measure(ask func(string) error, n int) []time.Duration {
	var mu sync.Mutex
	var all []time.Duration
	var done sync.WaitGroup
	until := time.Now().Add(roundTime)
	for caller := range n {
		done.Add(1)
		go func() {
			defer done.Done()
			var own []time.Duration
			for i := caller; time.Now().Before(until); i++ {
				key := fmt.Sprintf("user-%d", i%keys)
				started := time.Now()
				check(ask(key))
				own = append(own, time.Since(started))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		}()
	}
	done.Wait()
	return all
}

// A row collects the rounds of one way.
type row struct {
	durations []time.Duration
	rates     []float64
}

func (r *row) add(durations []time.Duration) {
	r.durations = append(r.durations, durations...)
	r.rates = append(r.rates, float64(len(durations))/roundTime.Seconds())
}

func (r *row) print(name string) {
	slices.Sort(r.durations)
	slices.Sort(r.rates)
	at := func(part float64) string {
		us := float64(r.durations[int(part*float64(len(r.durations)-1))].Nanoseconds()) / 1000
		if us < 10 {
			return fmt.Sprintf("%.2f", us)
		}
		return fmt.Sprintf("%.0f", us)
	}
	fmt.Printf("| %-33s | %8s | %8s | %9.0f |\n", name, at(0.5), at(0.99), r.rates[len(r.rates)/2])
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == "worker" {
		worker(os.Args[2], os.Args[3])
		return
	}
	folder, err := os.MkdirTemp("", "bench-")
	check(err)
	defer os.RemoveAll(folder)
	redisSocket := filepath.Join(folder, "redis.sock")
	defer start(filepath.Join(os.Getenv("DEPS"), "bin", "redis-server"),
		"--port", "0", "--save", "", "--appendonly", "no", "--unixsocket", redisSocket)()
	wait(redisSocket)
	for _, store := range []string{"memory", "redis"} {
		defer startDaemon(folder, store)()
	}

	fmt.Printf("%d cores, %s; %d rounds of %v each; microseconds\n\n",
		runtime.NumCPU(), runtime.Version(), rounds, roundTime)
	for _, n := range []int{1, callers} {
		table(fmt.Sprintf("%d at a time, one process", n))
		rows := map[string]*row{}
		for range rounds {
			for _, way := range ways {
				if way.alone && n > 1 {
					continue
				}
				ask, closeAll := way.open(folder)
				check(ask("warm"))
				one := rows[way.name]
				if one == nil {
					one = &row{}
					rows[way.name] = one
				}
				one.add(measure(ask, n))
				closeAll()
			}
		}
		for _, way := range ways {
			if rows[way.name] != nil {
				rows[way.name].print(way.name)
			}
		}
	}

	together := slices.DeleteFunc(slices.Clone(ways), func(way way) bool { return way.alone })
	table(fmt.Sprintf("%d processes, %d at a time in each", processes, perProcess))
	rows := map[string]*row{}
	for range rounds {
		for _, way := range together {
			if rows[way.name] == nil {
				rows[way.name] = &row{}
			}
			rows[way.name].add(workers(way.name, folder))
		}
	}
	for _, way := range together {
		rows[way.name].print(way.name)
	}
}

func table(title string) {
	fmt.Printf("| %-33s | %8s | %8s | %9s |\n|---|---|---|---|\n", title, "p50", "p99", "checks/s")
}

func workers(name, folder string) (all []time.Duration) {
	var running []*exec.Cmd
	var outputs []*strings.Builder
	for range processes {
		process, output := exec.Command(os.Args[0], "worker", name, folder), &strings.Builder{}
		process.Stdout, process.Stderr = output, os.Stderr
		check(process.Start())
		running, outputs = append(running, process), append(outputs, output)
	}
	for i, process := range running {
		check(process.Wait())
		var own []time.Duration
		check(json.Unmarshal([]byte(outputs[i].String()), &own))
		all = append(all, own...)
	}
	return all
}

func worker(name, folder string) {
	for _, way := range ways {
		if way.name == name {
			ask, closeAll := way.open(folder)
			check(ask("warm"))
			durations := measure(ask, perProcess)
			closeAll()
			check(json.NewEncoder(os.Stdout).Encode(durations))
		}
	}
}

func startDaemon(folder, store string) (stop func()) {
	settings := ""
	if store == "redis" {
		settings = fmt.Sprintf("store: {type: redis, redis: {addresses: [\"unix:%s/redis.sock\"]}}\n", folder)
	}
	settings += "policies:\n  bench: {algorithm: gcra, limit: 1000000, window: 1m, deadline: 1s}\n" +
		"  full: {algorithm: fixed_window, limit: 1, window: 1h}\n"
	path := filepath.Join(folder, store+".yaml")
	check(os.WriteFile(path, []byte(settings), 0o600))
	program := filepath.Join(os.Getenv("RATELIMITD_BUILD"), "bin", "ratelimitd")
	stop = start(program, "-c", path, "-s", filepath.Join(folder, store))
	wait(filepath.Join(folder, store))
	return stop
}

func start(program string, arguments ...string) (stop func()) {
	process := exec.Command(program, arguments...)
	check(process.Start())
	return func() { process.Process.Kill(); process.Wait() }
}

func wait(path string) {
	for {
		if conn, err := net.Dial("unix", path); err == nil {
			conn.Close()
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
