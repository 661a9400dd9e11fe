package hostile

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// frameInputs are bytes that are no requests.
func frameInputs() []input {
	return []input{
		{number: 1, name: "length 2^31-1, then silence", run: refusedFrame(0x7f, 0xff, 0xff, 0xff)},
		{number: 2, name: "length -1", run: refusedFrame(0xff, 0xff, 0xff, 0xff)},
		{number: 3, name: "length 0", run: refusedFrame(0, 0, 0, 0)},
		{number: 4, name: "length 3, below the header", run: refusedFrame(0, 0, 0, 3, 0, 0, 0)},
		{number: 5, name: "a body that drips", run: drip},
		{number: 7, name: "an HTTP request", run: refusedFrame([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")...)},
		{number: 8, name: "TLS", run: tlsHello},
		{number: 9, name: "a TLS hello with 64 KiB of server name, a record of 16 KiB of certificates", run: tlsRecords},
	}
}

// refusedFrame closes the connection.
func refusedFrame(p ...byte) func(*attack) string {
	return func(a *attack) string {
		c := a.dial()
		c.raw(p)
		c.closed()
		return "closed"
	}
}

// drip sends a good length and then a byte every ten seconds. The short form does
// not wait until the node has had enough; the frame reader's own tests do.
func drip(a *attack) string {
	c := a.dial()
	frame := header(18, 3, make([]byte, 5000)...)
	c.raw(frame[:20])
	if !a.full {
		a.closings++ // by us, in the middle of a request
		return "left waiting"
	}
	began := time.Now()
	a.closings++
	ended := make(chan error, 1)
	go func() { // ends with the connection
		n, err := c.drained()
		if n > 0 {
			err = fmt.Errorf("the node sent %d bytes", n)
		}
		ended <- err
	}()
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for i := 20; ; i++ {
		select {
		case err := <-ended:
			if err != nil {
				a.Fatal(err)
			}
			return fmt.Sprintf("closed after %.0f s", time.Since(began).Seconds())
		case <-tick.C:
			c.raw(frame[i : i+1])
		}
	}
}

// tlsHello is a client that takes the port for a TLS one. There is no TLS
// listener that plaintext could be sent to.
func tlsHello(a *attack) string {
	c := a.dial()
	err := tls.Client(c.c, &tls.Config{ServerName: "localhost"}).Handshake()
	if err == nil || strings.Contains(err.Error(), "certificate") {
		a.Fatalf("the handshake ended with %v", err)
	}
	a.closings++
	return "closed; there is no TLS listener"
}

// tlsRecords are what a TLS port would have to bear. Here they are lengths and
// keys that cannot be.
func tlsRecords(a *attack) string {
	name := bytes.Repeat([]byte("a"), 1<<16)
	hello := append([]byte{0x16, 3, 1, 0xff, 0xff, 1, 1, 0, 0}, name...)
	certificates := append([]byte{0x16, 3, 3, 0x40, 0, 11, 0, 0x3f, 0xfc}, bytes.Repeat([]byte{0x30}, 1<<14)...)
	for _, p := range [][]byte{hello, certificates} {
		c := a.dial()
		c.raw(p)
		c.closed()
	}
	return "closed; there is no TLS listener"
}

// sasl is about authentication, which this broker has none of: its keys are not
// served, not advertised, and close the connection.
func sasl() []input {
	return []input{{number: 36, name: "SASL in every order", run: func(a *attack) string {
		handshake := kmsg.NewPtrSASLHandshakeRequest()
		handshake.Version, handshake.Mechanism = 1, "SCRAM-SHA-256"
		authenticate := kmsg.NewPtrSASLAuthenticateRequest()
		authenticate.Version, authenticate.SASLAuthBytes = 2, []byte("n,a=admin,n="+strings.Repeat("=2C", 20_000)+",r=x")
		for _, first := range []kmsg.Request{handshake, authenticate} {
			c := a.dial()
			a.notServed(c, first.Key())
			c.raw(c.encode(first, "attacker"))
			c.closed()
		}
		return "closed: not served, not advertised"
	}}}
}

// notServed asks which keys are advertised.
func (a *attack) notServed(c *conn, keys ...int16) {
	a.Helper()
	for _, k := range c.ask(apiVersions()).(*kmsg.ApiVersionsResponse).ApiKeys {
		for _, key := range keys {
			if k.ApiKey == key {
				a.Errorf("%s is advertised", kmsg.NameForKey(key))
			}
		}
	}
}

// fieldInputs are requests that are not well formed, or not what the broker has.
func fieldInputs() []input {
	return []input{
		{number: 10, name: "keys -1, 7, 127, 128, 32767", run: func(a *attack) string {
			for _, key := range []int16{-1, 7, 127, 128, 32767} {
				c := a.dial()
				c.raw(header(key, 0, 0, 0, 0, 0))
				c.closed()
			}
			return "closed"
		}},
		{number: 11, name: "versions -1 and 32767", run: versions},
		{number: 13, name: "client ids: null, 32 KiB, newlines and escapes", run: clientIDs},
		{number: 14, name: "tags: 2^31-1 of them, too large, twice, descending", run: refusedBodies(
			header(3, 9, 0xff, 0xff, 0xff, 0xff, 0x07),                  // in the header
			header(3, 9, 1, 9, 0xff, 0x7f),                              // a size above what is left
			header(3, 9, 2, 5, 0, 5, 0, 1, 0, 0, 0),                     // a tag twice
			header(3, 9, 2, 5, 0, 4, 0, 1, 0, 0, 0),                     // descending
			header(3, 9, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x07),   // in the body
			header(18, 3, 0, 2, 'x', 2, '1', 0xff, 0xff, 0xff, 0xff, 7), // of ApiVersions, too
		)},
		{number: 15, name: "varints without end", run: refusedBodies(
			header(3, 9, append([]byte{0}, bytes.Repeat([]byte{0xff}, 12)...)...),
			header(3, 9, append([]byte{0}, bytes.Repeat([]byte{0x80}, 400)...)...),
		)},
		{number: 16, name: "null where none may be", run: refusedBodies(
			header(18, 3, 0, 0, 0, 0), // a compact string of length 0
			header(10, 0, 0xff, 0xff), // a string of length -1
			header(1, 4, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff), // an array of length -1
		)},
	}
}

// refusedBodies closes a connection for each of the frames.
func refusedBodies(frames ...[]byte) func(*attack) string {
	return func(a *attack) string {
		for _, p := range frames {
			c := a.dial()
			c.raw(p)
			c.closed()
		}
		return "closed"
	}
}

// versions closes the connection, except for ApiVersions, which tells what there is.
func versions(a *attack) string {
	for _, v := range []int16{-1, 32767} {
		c := a.dial()
		c.raw(header(3, v, 0, 0, 0, 0))
		c.closed()
		c = a.dial()
		c.raw(header(18, v, 1, 2, 3))
		_, body, err := c.frame()
		if err != nil {
			a.Fatal(err)
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		if err := resp.ReadFrom(body); err != nil {
			a.Fatal(err)
		}
		a.code("ApiVersions of a version that there is not", resp.ErrorCode, 35)
		if len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != 18 {
			a.Errorf("it names %v, want its own versions", resp.ApiKeys)
		}
		a.code("the next request", c.ask(apiVersions()).(*kmsg.ApiVersionsResponse).ErrorCode, 0)
	}
	return "closed; ApiVersions: 35, in version 0"
}

// clientIDs are answered whatever they are. What is kept of one, with a member, is
// no longer than names are.
func clientIDs(a *attack) string {
	c := a.dial()
	c.raw(header(18, 0)) // null
	if _, _, err := c.frame(); err != nil {
		a.Fatal(err)
	}
	long := strings.Repeat("\x1b[31m\n\r\x00evil", 4000)[:32767]
	if _, err := c.tryAs(apiVersions(), long); err != nil {
		a.Fatal(err)
	}
	join := joinRequest("named", "")
	join.Version = 3
	resp, err := c.tryAs(join, long)
	if err != nil {
		a.Fatal(err)
	}
	a.code("join", resp.(*kmsg.JoinGroupResponse).ErrorCode, 0)
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Version, describe.Groups = 3, []string{"named"}
	m := c.ask(describe).(*kmsg.DescribeGroupsResponse).Groups[0].Members
	if len(m) != 1 || len(m[0].ClientID) > 255 {
		a.Errorf("%d members, the first with a client id of %d bytes, want one with at most 255", len(m), len(m[0].ClientID))
	}
	a.leave(c, "named", resp.(*kmsg.JoinGroupResponse).MemberID)
	return "answered; 255 bytes are kept"
}
