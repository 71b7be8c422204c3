package ratelimit

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tinylib/msgp/msgp"
)

// A connection takes calls from its first moment; they queue up while it is being made. It has two goroutines. serve
// connects, reads answers and hands each to its call. write gathers the queued calls into one write. When the stream
// ends, serve waits for write, so it knows how many bytes have left, and reports to each remaining call whether it may have
// been charged.
//
//	call: queued -> sent -> ended          answered, or the connection ended
//	         |        |
//	         |        +----> forsaken      the caller has gone; a late yes to acquire or reserve is undone
//	         +-------------> ended         the caller has gone; the call never leaves
//
// msgids are counted up and never used twice. An answer that no caller waits for is dropped.
type connection struct {
	onSlotLost func(*Slot)
	wake       chan struct{} // there is something to write
	ending     chan struct{} // closed: nothing more is written
	hello      chan struct{} // closed: hello was answered, or the connection has ended
	ended      chan struct{} // closed: both goroutines have ended
	parsing    atomic.Bool   // bytes were read and are not dealt with yet

	mu        sync.Mutex
	stream    net.Conn // nil until it is made; then only its methods are used
	broken    bool     // no new calls
	cause     error
	queue     []*call
	abandoned int // calls in the queue that will not be sent
	pending   map[uint64]*call
	forsaken  int // calls in pending whose late yes must be undone
	lastID    uint64
	assigned  int64 // bytes given to the stream, and of those
	written   int64 // the ones that it took
	slots     map[string]*Slot
	frameMax  int
	features  []string // that the daemon has listed
}

const (
	callsMax    = 65536     // of one connection, waiting to be sent or answered
	batchBytes  = 64 << 10  // of one write
	frameSure   = 256       // bytes of a request that every daemon takes
	frameUsual  = 1024      // that nearly every daemon takes
	frameMax    = 65536     // that a daemon takes which does not name its own
	forsakenMax = 4096      // a connection that leaves more than these unanswered is closed
	bufferKept  = 256 << 10 // of one connection, after a long answer
	lastWords   = 10 * time.Millisecond

	giveBackPause = 50 * time.Millisecond // after OVERLOADED
)

var errEnded = errors.New("the connection has ended")

// A call is one request. Its packed method and params are made by the caller, its header by the connection.
type call struct {
	body       []byte
	undo       string // the method that undoes a late yes: "release", "cancel" or none
	same       string // equal for checks whose denial is remembered together; empty: it is not remembered
	repeatable bool   // it has a request_id, and may be sent again
	named      bool   // an inline policy in body has a name, which only some daemons take
	identified bool   // the same of an id
	notifies   bool   // it has no answer
	givesBack  bool   // sent also by an open breaker, and if the caller has gone; again after OVERLOADED

	state callState // this and the next two belong to the connection's mutex
	id    uint64
	end   int64 // where its last byte stands in the stream

	done   chan struct{} // closed when the call has ended; then these two are valid
	err    error
	result []byte
}

type callState int

const (
	stateQueued callState = iota
	stateSent
	stateForsaken
	stateEnded
)

// newCall begins a request; the caller appends its params to body.
func newCall(method string, params uint32) *call {
	body := msgp.AppendString(make([]byte, 0, 128), method)
	return &call{body: msgp.AppendArrayHeader(body, params), done: make(chan struct{})}
}

// reset makes a call that has ended ready to be sent again.
func (q *call) reset() {
	q.state, q.id, q.end, q.err = stateQueued, 0, 0, nil
	q.done = make(chan struct{})
}

// newConnection returns at once. onDialled gets the result of connecting before any call does.
func newConnection(dial func() (net.Conn, error), onDialled func(error), onSlotLost func(*Slot)) *connection {
	k := &connection{
		onSlotLost: onSlotLost,
		wake:       make(chan struct{}, 1),
		ending:     make(chan struct{}),
		hello:      make(chan struct{}),
		ended:      make(chan struct{}),
		pending:    map[uint64]*call{},
		slots:      map[string]*Slot{},
		frameMax:   frameMax,
	}

	hello := newCall("hello", 1)
	hello.body = msgp.AppendMapHeader(hello.body, 1)
	hello.body = msgp.AppendBool(msgp.AppendString(hello.body, "describe"), true)
	k.queue = append(k.queue, hello)
	k.wake <- struct{}{}
	go k.serve(hello, dial, onDialled)

	return k
}

func (k *connection) usable() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.broken
}

// send queues a call. Afterwards the call ends exactly once, unless it is abandoned.
func (k *connection) send(q *call) error {
	k.mu.Lock()
	switch {
	case k.broken:
		k.mu.Unlock()
		return errEnded
	case len(k.queue)-k.abandoned+len(k.pending) >= callsMax:
		k.mu.Unlock()
		return &UnavailableError{Kind: KindOverloaded, Message: "65536 calls are waiting in this client"}
	}
	k.queue = append(k.queue, q)
	k.mu.Unlock()

	k.awake()
	return nil
}

func (k *connection) awake() {
	select {
	case k.wake <- struct{}{}:
	default: // it is awake
	}
}

// abandonment has the daemon give back what it has granted, or will grant, to a call.
func abandonment(id uint64) *call {
	notice := newCall("abandon", 1)
	notice.body = msgp.AppendUint64(notice.body, id)
	notice.notifies = true
	return notice
}

// has reports whether the daemon has listed a feature on this connection.
func (k *connection) has(feature string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.features, feature)
}

// abandon gives a call up. inTime: it has ended, its result counts. Else sent reports whether the daemon may have it; if
// it may, and allows an acquire or reserve, the connection undoes that.
func (k *connection) abandon(q *call) (sent, inTime bool) {
	k.mu.Lock()
	defer k.mu.Unlock()

	switch q.state {
	case stateEnded:
		return true, true
	case stateQueued:
		if q.givesBack {
			return true, false
		}
		q.state = stateEnded
		if k.abandoned++; k.abandoned > len(k.queue)/2 {
			k.dropAbandoned()
		}
		return false, false
	}

	if q.undo == "" || slices.Contains(k.features, "abandon") {
		if q.undo != "" {
			k.queue = append(k.queue, abandonment(q.id))
			k.awake()
		}
		delete(k.pending, q.id)
		q.state = stateEnded
		return true, false
	}
	q.state = stateForsaken
	if k.forsaken++; k.forsaken > forsakenMax {
		k.breakLocked(errors.New("too many calls were left unanswered"))
	}
	return true, false
}

func (k *connection) dropAbandoned() {
	kept := k.queue[:0]
	for _, q := range k.queue {
		if q.state == stateQueued {
			kept = append(kept, q)
		}
	}
	clear(k.queue[len(kept):])
	k.queue, k.abandoned = kept, 0
}

// end closes the connection for a reason of this side.
func (k *connection) end(cause error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.breakLocked(cause)
}

func (k *connection) breakLocked(cause error) {
	k.broken = true
	if k.cause == nil {
		k.cause = cause
	}
	if k.stream != nil {
		k.stream.Close()
	}
}

// hasUnread reports whether an answer has arrived that was not dealt with yet.
func (k *connection) hasUnread() bool {
	if k.parsing.Load() {
		return true
	}
	k.mu.Lock()
	stream, ok := k.stream.(syscall.Conn)
	k.mu.Unlock()
	if !ok {
		return false
	}
	raw, err := stream.SyscallConn()
	if err != nil {
		return false
	}

	var n int
	var peeked [1]byte
	raw.Control(func(fd uintptr) {
		n, _, err = syscall.Recvfrom(int(fd), peeked[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return err == nil && n > 0
}

// fits reports whether the daemon takes a request of this length. A longer one would end the connection, for all
// callers. So a long request waits until the daemon has answered hello, which has the longest size; until then
// frameUsual is.
func (k *connection) fits(ctx context.Context, q *call, timer *time.Timer) error {
	length := len(q.body) + headerMax
	if length <= frameSure {
		return nil
	}
	if length > frameUsual {
		select {
		case <-k.hello:
		case <-ctx.Done():
			return fromContext(ctx.Err(), false)
		case <-timer.C:
			return fromContext(context.DeadlineExceeded, false)
		}
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	if length > k.frameMax {
		return &RefusedError{Code: "TOO_LARGE", Message: "the request is longer than the daemon accepts; split it"}
	}
	return nil
}

// headerMax is the longest beginning of a request: the array, the type and the msgid.
const headerMax = 1 + 1 + 9

func (k *connection) write(stream net.Conn, stopped chan<- struct{}) {
	defer close(stopped)
	var batch []byte
	for {
		select {
		case <-k.wake:
		case <-k.ending:
			return
		}

		for {
			batch = k.gather(batch[:0])
			if len(batch) == 0 {
				break
			}
			n, err := stream.Write(batch)

			k.mu.Lock()
			k.written += int64(n)
			if err != nil {
				k.broken = true
			}
			k.mu.Unlock()
			if err != nil { // what the daemon sent before is still to be read
				stream.SetReadDeadline(time.Now().Add(lastWords))
				return
			}
		}
		if cap(batch) > bufferKept {
			batch = nil
		}
	}
}

// gather packs queued calls into one batch and moves them to the pending ones.
func (k *connection) gather(batch []byte) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()

	taken := 0
	for _, q := range k.queue {
		if len(batch) >= batchBytes {
			break
		}
		taken++
		if q.state != stateQueued {
			k.abandoned--
			continue
		}
		if q.notifies {
			batch = append(append(batch, 0x93, 0x02), q.body...)
			q.state = stateEnded
			continue
		}

		body := q.body
		if q.named || q.identified {
			body = without(body, k.unknown(q))
		}
		k.lastID++
		q.id, q.state = k.lastID, stateSent
		batch = append(batch, 0x94, 0x00)
		batch = msgp.AppendUint64(batch, q.id)
		batch = append(batch, body...)
		q.end = k.assigned + int64(len(batch))
		k.pending[q.id] = q
	}
	left := copy(k.queue, k.queue[taken:])
	clear(k.queue[left:])
	k.queue = k.queue[:left]
	k.assigned += int64(len(batch))

	return batch
}

// unknown are the settings of a call's inline policies that the daemon does not take.
func (k *connection) unknown(q *call) (settings []string) {
	if q.named && !slices.Contains(k.features, "name") {
		settings = append(settings, "name")
	}
	if q.identified && !slices.Contains(k.features, "id") {
		settings = append(settings, "id")
	}
	return settings
}

func (k *connection) serve(hello *call, dial func() (net.Conn, error), onDialled func(error)) {
	stream, err := dial()
	onDialled(err)

	if err == nil {
		k.mu.Lock()
		k.stream = stream
		if k.broken { // meanwhile
			stream.Close()
		}
		k.mu.Unlock()

		stopped := make(chan struct{})
		go k.write(stream, stopped)
		err = k.read(stream, hello)
		k.end(err)
		close(k.ending)
		<-stopped
	}

	k.end(err)
	lost := k.endCalls()
	close(k.ended)
	for _, slot := range lost {
		k.lose(slot)
	}
}

func (k *connection) lose(slot *Slot) {
	close(slot.lost)
	if k.onSlotLost != nil && !errors.Is(k.cause, ErrClosed) {
		k.onSlotLost(slot)
	}
}

// read hands out answers until the stream ends or cannot be trusted any more.
func (k *connection) read(stream net.Conn, hello *call) error {
	var scanner scanner
	buffer := make([]byte, 0, 16<<10)
	for {
		if len(buffer) == cap(buffer) {
			buffer = append(make([]byte, 0, 2*cap(buffer)), buffer...)
		}
		n, err := stream.Read(buffer[len(buffer):cap(buffer)])
		k.parsing.Store(true)
		buffer = buffer[:len(buffer)+n]

		used := 0
		for used < len(buffer) {
			length, err := scanner.scan(buffer[used:])
			if err != nil {
				return brokenAnswer("%v", err)
			}
			if length == 0 {
				break
			}
			if err := k.receive(buffer[used:used+length], hello); err != nil {
				return err
			}
			used += length
		}
		left := copy(buffer[:cap(buffer)], buffer[used:])
		buffer = buffer[:left]
		if cap(buffer) > bufferKept && left < bufferKept/2 {
			buffer = append(make([]byte, 0, bufferKept), buffer...)
		}
		k.parsing.Store(false)

		if err != nil {
			return &UnavailableError{Kind: KindLost, Message: "the daemon closed the connection"}
		}
	}
}

// receive deals with one message. An error means that the stream cannot be trusted.
func (k *connection) receive(message []byte, hello *call) error {
	if message[0] != 0x94 && message[0] != 0xdc && message[0] != 0xdd {
		return brokenAnswer("bytes that are no answer")
	}
	size, message, err := msgp.ReadArrayHeaderBytes(message)
	if err != nil || size != 4 {
		return brokenAnswer("an array of %d instead of an answer", size)
	}
	kind, message, err := msgp.ReadUint64Bytes(message)
	if err != nil || kind != 1 {
		return brokenAnswer("a message that is not an answer")
	}

	if msgp.IsNil(message) { // the daemon's final error
		text, _, _ := readString(message[1:])
		failure := &UnavailableError{Kind: KindLost, Message: "the daemon closed the connection: " + text}
		var refused *RefusedError
		var unavailable *UnavailableError
		if err := fromDaemon(text); errors.As(err, &refused) {
			failure.Code = refused.Code
		} else if errors.As(err, &unavailable) {
			failure.Code = unavailable.Code
		}
		return failure
	}
	id, message, err := msgp.ReadUint64Bytes(message)
	if err != nil {
		return brokenAnswer("an answer whose msgid is no number")
	}

	var failure error
	if msgp.IsNil(message) {
		message = message[1:]
		if msgp.IsNil(message) {
			failure = brokenAnswer("neither an error nor a result")
		}
	} else {
		text, rest, err := readString(message)
		if err != nil {
			failure = brokenAnswer("an error that is not a text")
		} else if !msgp.IsNil(rest) {
			return brokenAnswer("an error and a result")
		} else {
			failure = fromDaemon(text)
		}
	}
	k.answer(id, message, failure, hello)

	return nil
}

// answer ends the call of this id.
func (k *connection) answer(id uint64, result []byte, failure error, hello *call) {
	k.mu.Lock()
	q := k.pending[id]
	if q == nil {
		k.mu.Unlock()
		return
	}
	delete(k.pending, id)
	late := q.state == stateForsaken
	q.state = stateEnded
	if late {
		k.forsaken--
	}
	if q == hello && failure == nil {
		k.frameMax, k.features = readHello(result)
	}
	k.mu.Unlock()

	switch {
	case late && failure == nil:
		if undoing := undoOf(q.undo, result); undoing != nil {
			k.send(undoing)
		}
	case !late:
		q.err = failure
		if failure == nil {
			q.result = append(q.result[:0], result...)
		}
		close(q.done)
	}
	if q.givesBack && isKind(failure, KindOverloaded) {
		again := &call{body: q.body, givesBack: true, done: make(chan struct{})}
		time.AfterFunc(giveBackPause, func() { k.send(again) })
	}
	if q == hello {
		close(k.hello)
	}
}

// endCalls ends all calls that have no answer, and returns the slots that the connection has held.
func (k *connection) endCalls() []*Slot {
	k.mu.Lock()
	defer k.mu.Unlock()

	end := func(q *call, sent bool) {
		forsaken := q.state == stateForsaken
		q.state = stateEnded
		if forsaken {
			return
		}
		failure := &UnavailableError{Kind: KindLost, Err: k.cause}
		var known *UnavailableError
		if errors.As(k.cause, &known) {
			*failure = *known
		}
		if failure.Kind == KindProtocol && !sent {
			failure.Kind = KindLost // it was not the answer to this call
		}
		failure.MaybeCharged = sent
		q.err = failure
		close(q.done)
	}
	for _, q := range k.pending {
		end(q, q.end <= k.written)
	}
	for _, q := range k.queue {
		if q.state == stateQueued {
			end(q, false)
		}
	}
	k.pending, k.queue, k.abandoned = nil, nil, 0

	select {
	case <-k.hello:
	default:
		close(k.hello)
	}

	var lost []*Slot
	for _, slot := range k.slots {
		lost = append(lost, slot)
	}
	k.slots = nil
	return lost
}

// hold makes the slot one of this connection. False: the connection has ended, and the slot with it.
func (k *connection) hold(slot *Slot) bool {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.slots == nil {
		return false
	}
	k.slots[slot.id] = slot
	return true
}

// letGo is the beginning of a release. False: the slot was lost.
func (k *connection) letGo(slot *Slot) bool {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.slots == nil || k.broken {
		return false
	}
	delete(k.slots, slot.id)
	return true
}

// waiting is the number of calls without an answer.
func (k *connection) waiting() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.queue) - k.abandoned + len(k.pending)
}
