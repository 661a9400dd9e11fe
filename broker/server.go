package broker

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/wire"
)

// serverConfig is what the client listener holds clients to.
type serverConfig struct {
	MaxRequestBytes     int           // largest frame (socket.request.max.bytes)
	RequestMemory       int64         // budget of all requests together (queued.max.request.bytes)
	InflateMemory       int64         // budget of all batches that are uncompressed to be checked
	FetchMaxBytes       int           // largest Fetch response (fetch.max.bytes)
	MessageMaxBytes     int           // largest batch of topics that do not say (message.max.bytes)
	Cleanup             CleanupPolicy // of topics that do not say (log.cleanup.policy)
	FetchSessions       int           // slots of the session cache (max.incremental.fetch.session.cache.slots)
	AutoCreateTopics    bool          // Metadata creates what it does not find (auto.create.topics.enable)
	MaxConnections      int           // in all (max.connections)
	MaxConnectionsPerIP int           // from one address (max.connections.per.ip)
	MaxInFlight         int           // unanswered requests of one connection
	IdleTimeout         time.Duration // silence between requests (connections.max.idle.ms)
	FrameTimeout        time.Duration // for each step of a request to arrive
	WriteTimeout        time.Duration // for a client to take a response
}

// defaultServerConfig returns the values of a node that was told nothing.
func defaultServerConfig() serverConfig {
	return serverConfig{
		MaxRequestBytes:     100 << 20,
		RequestMemory:       256 << 20,
		InflateMemory:       128 << 20,
		FetchMaxBytes:       55 << 20,
		MessageMaxBytes:     1<<20 + 12,
		FetchSessions:       1000,
		AutoCreateTopics:    true,
		MaxConnections:      10_000,
		MaxConnectionsPerIP: 10_000,
		MaxInFlight:         64,
		IdleTimeout:         10 * time.Minute,
		FrameTimeout:        30 * time.Second,
		WriteTimeout:        30 * time.Second,
	}
}

func (c serverConfig) validate() error {
	switch {
	case c.MaxRequestBytes < minFrame:
		return fmt.Errorf("largest request of %d bytes", c.MaxRequestBytes)
	case c.RequestMemory <= 0, c.InflateMemory <= 0, c.FetchMaxBytes <= 0, c.MessageMaxBytes < 0, c.FetchSessions < 0:
		return errors.New("a memory budget or a size is not positive")
	case c.MaxConnections <= 0, c.MaxConnectionsPerIP <= 0, c.MaxInFlight <= 0:
		return errors.New("a limit on connections or requests is not positive")
	case c.IdleTimeout <= 0, c.FrameTimeout <= 0, c.WriteTimeout <= 0:
		return errors.New("a timeout is not positive")
	}
	return nil
}

// server is the client side of a node: it accepts connections, holds them to
// their limits, and dispatches their requests to the handlers.
//
// It owns one goroutine per listener being served and two per connection; Close
// waits for all of them.
type server struct {
	config    serverConfig
	backend   *backend
	log       hclog.Logger
	metrics   *metrics
	apis      [servedKeys]*servedAPI
	budget    *budget
	buffers   buffers
	inflater  *inflater
	responses responsePool
	sessions  *fetchSessions
	creator   *topicCreator
	limits    *connLimits
	logLimit  *logLimit

	drain chan struct{} // closed when Close begins

	mu        sync.Mutex
	closed    bool                         // guarded by mu
	listeners map[net.Listener]struct{}    // guarded by mu
	silent    *list.List                   // guarded by mu; of *Conn, those that have sent no request yet, the oldest first
	conns     map[*Conn]context.CancelFunc // guarded by mu
	work      sync.WaitGroup               // Add is called under mu while not closed
}

// newServer returns a server of b that has no listener yet.
func newServer(c serverConfig, b *backend) (*server, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("start the client listener: %w", err)
	}
	s := &server{
		config:    c,
		backend:   b,
		log:       b.log.Named("server"),
		metrics:   b.metrics,
		budget:    newBudget(c.RequestMemory),
		inflater:  newInflater(c.InflateMemory),
		sessions:  newFetchSessions(c.FetchSessions, time.Now),
		creator:   newTopicCreator(b.admin, time.Now, b.log.Named("autocreate")),
		limits:    newConnLimits(c.MaxConnections, c.MaxConnectionsPerIP),
		logLimit:  newLogLimit(time.Now()),
		drain:     make(chan struct{}),
		listeners: make(map[net.Listener]struct{}),
		silent:    list.New(),
		conns:     make(map[*Conn]context.CancelFunc),
	}
	s.serveAPIs(apiRows())
	b.metrics.watchBudget(s.budget)
	b.metrics.watchFetchSessions(s.sessions)
	return s, nil
}

// Serve accepts connections from l until Close, and then returns nil.
func (s *server) Serve(l net.Listener) error {
	if !s.enter(func() { s.listeners[l] = struct{}{} }) {
		_ = l.Close() // the server is closed; nobody will use it
		return nil
	}
	defer s.work.Done()
	var pause acceptPause
	for {
		c, err := l.Accept()
		if err == nil {
			pause.reset()
			s.welcome(c)
			continue
		}
		if s.ended() != nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("accept clients on %s: %w", l.Addr(), err)
		}
		s.log.Error("accept a client", "listener", l.Addr().String(), "error", err)
		if !pause.wait(s.drain) {
			return nil
		}
	}
}

// enter counts one more goroutine and runs f under the lock, unless the server is closed.
func (s *server) enter(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Add(1)
	f()
	return true
}

// welcome starts serving one connection, or refuses it.
func (s *server) welcome(c net.Conn) {
	address := addressOf(c)
	if err := s.admit(address); err != nil {
		s.metrics.conns.refused.Inc()
		s.complain("client refused", c, err)
		_ = c.Close() // refused
		return
	}
	conn := newConn(s, c, address)
	ctx, cancel := context.WithCancel(context.Background())
	if !s.enter(func() {
		s.conns[conn] = cancel
		conn.silent = s.silent.PushBack(conn)
	}) {
		cancel()
		s.limits.leave(address)
		conn.close()
		return
	}
	s.metrics.conns.accepted.Inc()
	s.metrics.conns.open.Inc()
	go func() { // ends with the connection; Close ends those
		defer s.work.Done()
		err := conn.serve(ctx)
		s.farewell(conn, err)
	}()
}

// admit counts one more connection. When all are taken, the oldest of those that
// have never sent a request goes for it: silence must not keep clients out.
func (s *server) admit(address netip.Addr) error {
	err := s.limits.admit(address)
	if !errors.Is(err, errTooManyConnections) {
		return err
	}
	victim := s.takeSilent()
	if victim == nil {
		return err
	}
	s.metrics.conns.displaced.Inc()
	s.complain("all connections are taken: one that has sent nothing makes room", victim.c, err)
	victim.close() // its reader notices
	s.limits.leave(victim.address)
	return s.limits.admit(address)
}

// takeSilent takes the oldest connection without a request off the books of limits.
func (s *server) takeSilent() *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.silent.Front()
	if first == nil {
		return nil
	}
	victim := first.Value.(*Conn)
	s.silent.Remove(first)
	victim.silent, victim.displaced = nil, true
	return victim
}

// heard says that a connection has sent a request.
func (s *server) heard(conn *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if conn.silent != nil {
		s.silent.Remove(conn.silent)
		conn.silent = nil
	}
}

// farewell takes a connection that has ended off the books.
func (s *server) farewell(conn *Conn, err error) {
	s.mu.Lock()
	cancel := s.conns[conn]
	delete(s.conns, conn)
	if conn.silent != nil {
		s.silent.Remove(conn.silent)
	}
	displaced := conn.displaced
	s.mu.Unlock()
	cancel()
	if !displaced {
		s.limits.leave(conn.address)
	}
	s.sessions.leave(conn)
	s.metrics.conns.open.Dec()
	if !ordinary(err) {
		s.metrics.conns.failed.Inc()
		s.complain("client connection closed", conn.c, err)
	}
}

// complain writes one line about a client, or counts it when there are too many.
func (s *server) complain(what string, c net.Conn, err error) {
	skipped, ok := s.logLimit.allow(time.Now())
	if !ok {
		return
	}
	args := []any{"client", c.RemoteAddr().String(), "error", err}
	if skipped > 0 {
		args = append(args, "similar_lines_left_out", skipped)
	}
	s.log.Warn(what, args...)
}

// ended returns errShuttingDown once Close has begun.
func (s *server) ended() error {
	select {
	case <-s.drain:
		return errShuttingDown
	default:
		return nil
	}
}

// Close stops accepting and reading, lets the requests that were read end, and
// waits for all goroutines. When ctx ends first it cuts what is left.
func (s *server) Close(ctx context.Context) error {
	s.stop()
	s.creator.close()
	done := make(chan struct{})
	go func() { // ends with the last goroutine of the server, which Close waits for
		s.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	for conn, cancel := range s.conns {
		cancel()
		conn.close()
	}
	s.mu.Unlock()
	<-done
	return fmt.Errorf("finish the clients' requests: %w", ctx.Err())
}

// cutOff ends all connections, whatever they wait for: their clients shall ask elsewhere.
// It only shuts them down, since closing one waits for the calls on it.
func (s *server) cutOff() {
	s.mu.Lock()
	conns := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	for _, conn := range conns {
		conn.shut()
	}
}

// connections counts the open connections.
func (s *server) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// stop begins the end: no more listeners, connections or requests.
func (s *server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	close(s.drain)
	for l := range s.listeners {
		_ = l.Close() // ends its Serve; an error means that it is closed
	}
	for conn := range s.conns {
		conn.stopReading()
	}
}

// apiLimits is what an API is held to; false means that it is not served.
func (s *server) apiLimits(key wire.Key) (apiLimits, bool) {
	api := s.served(key)
	if api == nil {
		return apiLimits{}, false
	}
	return apiLimits{maxBytes: api.maxBytes, factor: api.factor}, true
}

const (
	acceptPauseFirst = 5 * time.Millisecond
	acceptPauseMax   = time.Second
)

// acceptPause is how long to leave a listener alone after an error, such as
// having no descriptors left; longer each time.
type acceptPause struct{ last time.Duration }

func (p *acceptPause) reset() { p.last = 0 }

// wait returns false when stop came first.
func (p *acceptPause) wait(stop <-chan struct{}) bool {
	p.last = min(max(2*p.last, acceptPauseFirst), acceptPauseMax)
	t := time.NewTimer(p.last)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-stop:
		return false
	}
}
