package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
)

// healthCheck is one thing that must hold for a node to be ready. Check returns
// what is wrong, and must not wait.
type healthCheck struct {
	Name  string
	Check func() error
}

// adminConfig is what the admin listener shows.
type adminConfig struct {
	// Live reports what only a restart can cure.
	Live func() error
	// Started tells whether the node has finished starting.
	Started func() bool
	// Ready are the checks of readiness, in the order in which they are listed.
	Ready []healthCheck
	// Routes are further patterns of http.ServeMux.
	Routes  map[string]http.HandlerFunc
	Metrics *metrics
	Log     hclog.Logger
}

// admin is the HTTP server of the admin listener: metrics and health.
type admin struct {
	config adminConfig
	http   http.Server
}

// The limits of the admin listener's clients.
const (
	adminHeaderTimeout = 5 * time.Second
	adminReadTimeout   = 10 * time.Second
	adminWriteTimeout  = 30 * time.Second
	adminIdleTimeout   = 2 * time.Minute
	adminHeaderBytes   = 16 << 10
)

func newAdmin(c adminConfig) *admin {
	a := &admin{config: c}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", c.Metrics.handler())
	mux.HandleFunc("GET /livez", a.livez)
	mux.HandleFunc("GET /readyz", a.readyz)
	mux.HandleFunc("GET /healthz", a.readyz)
	mux.HandleFunc("GET /startupz", a.startupz)
	for pattern, handle := range c.Routes {
		mux.HandleFunc(pattern, handle)
	}
	a.http = http.Server{
		Handler:           mux,
		ReadHeaderTimeout: adminHeaderTimeout,
		ReadTimeout:       adminReadTimeout,
		WriteTimeout:      adminWriteTimeout,
		IdleTimeout:       adminIdleTimeout,
		MaxHeaderBytes:    adminHeaderBytes,
		ErrorLog:          c.Log.Named("admin").StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	return a
}

// Serve answers requests from l until Close, and then returns nil.
func (a *admin) Serve(l net.Listener) error {
	if err := a.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the admin listener %s: %w", l.Addr(), err)
	}
	return nil
}

// Close lets requests end until ctx does, and then cuts them.
func (a *admin) Close(ctx context.Context) error {
	if err := a.http.Shutdown(ctx); err != nil {
		return fmt.Errorf("close the admin listener: %w", errors.Join(err, a.http.Close()))
	}
	return nil
}

// livez tells whether the process is worth keeping.
func (a *admin) livez(w http.ResponseWriter, r *http.Request) {
	a.report(w, r, []healthCheck{{"live", a.config.Live}})
}

// startupz tells whether the node has finished starting.
func (a *admin) startupz(w http.ResponseWriter, r *http.Request) {
	a.report(w, r, []healthCheck{{"started", func() error {
		if !a.config.Started() {
			return errors.New("starting")
		}
		return nil
	}}})
}

// readyz tells whether clients should be sent here.
func (a *admin) readyz(w http.ResponseWriter, r *http.Request) {
	a.report(w, r, a.config.Ready)
}

// report answers 200 when all checks pass, else 503 with those that do not;
// ?verbose lists all of them.
func (a *admin) report(w http.ResponseWriter, r *http.Request, checks []healthCheck) {
	_, verbose := r.URL.Query()["verbose"]
	status, lines := http.StatusOK, []string(nil)
	for _, c := range checks {
		err := c.Check()
		switch {
		case err != nil:
			status = http.StatusServiceUnavailable
			lines = append(lines, fmt.Sprintf("[-] %s: %v", c.Name, err))
		case verbose:
			lines = append(lines, "[+] "+c.Name+": ok")
		}
	}
	if len(lines) == 0 {
		lines = []string{"ok"}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, strings.Join(lines, "\n")) // the client went away
}
