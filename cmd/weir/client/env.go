package client

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/urfave/cli/v2"
)

// metadataMinAge is how soon a client asks again who leads a partition. The
// library's default of 5 s would hide a failover that took 2.
const metadataMinAge = 250 * time.Millisecond

// metadataMaxAge is how long a client believes in what it was told. A member of a group of
// the consumer protocol whose coordinator died goes on dialling it until new metadata no
// longer list that node, and the library's default is 5 minutes.
const metadataMaxAge = 5 * time.Second

// Env is what the verbs read from and write to.
type Env struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// Commands returns the client verbs.
func (e *Env) Commands() []*cli.Command {
	return []*cli.Command{e.topicCommand(), e.produceCommand(), e.consumeCommand(), e.groupCommand(), e.partitionCommand(), e.clusterCommand(), e.benchCommand()}
}

// connectionFlags are on every client verb.
func connectionFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "brokers", Aliases: []string{"b"}, Value: "127.0.0.1:9092", EnvVars: []string{"WEIR_BROKERS"}, Usage: "`HOST:PORT,…` of one or more nodes"},
		&cli.DurationFlag{Name: "timeout", Value: 15 * time.Second, Usage: "give up after this `TIME` without an answer"},
	}
}

// outputFlag is on admin verbs.
func outputFlag() cli.Flag {
	return &cli.StringFlag{Name: "output", Aliases: []string{"o", "format"}, Value: "table", Usage: "`table` or json"}
}

func brokersOf(c *cli.Context) []string {
	var out []string
	for _, b := range strings.Split(c.String("brokers"), ",") {
		if b = strings.TrimSpace(b); b != "" {
			out = append(out, b)
		}
	}
	return out
}

// connect makes a client and sees that at least one broker answers, so that a
// wrong address is reported at once and not after a minute of retries.
func (e *Env) connect(c *cli.Context, opts ...kgo.Opt) (*kgo.Client, error) {
	brokers := brokersOf(c)
	if len(brokers) == 0 {
		return nil, usagef("-b names no broker; give HOST:PORT")
	}
	cl, err := kgo.NewClient(append(clientOpts(brokers), opts...)...)
	if err != nil {
		return nil, usagef("cannot set up the client: %v", err)
	}
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		cl.Close()
		return nil, explain("connect", brokers, err)
	}
	return cl, nil
}

// clientOpts are the settings of every client of ours.
func clientOpts(brokers []string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.ClientID("weir-cli"),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.MetadataMaxAge(metadataMaxAge),
		kgo.DialTimeout(3 * time.Second),
	}
}

// admin is connect for admin verbs; the returned context ends with --timeout.
func (e *Env) admin(c *cli.Context) (context.Context, *kadm.Client, func(), error) {
	ctx, _, adm, done, err := e.adminClient(c)
	return ctx, adm, done, err
}

// adminClient is admin with the client below it, for verbs that need requests
// or records that kadm does not know.
func (e *Env) adminClient(c *cli.Context) (context.Context, *kgo.Client, *kadm.Client, func(), error) {
	cl, err := e.connect(c, kgo.RetryTimeout(c.Duration("timeout")))
	if err != nil {
		return nil, nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	adm := kadm.NewClient(cl)
	adm.SetTimeoutMillis(int32(c.Duration("timeout").Milliseconds()))
	return ctx, cl, adm, func() { cancel(); cl.Close() }, nil
}

// terminal tells whether w is a terminal, where progress may be drawn.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
