package broker

import (
	"context"
	"strings"

	"github.com/weirmq/weir/wire"
)

func handleApiVersions(_ context.Context, c *Conn, h wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.ApiVersionsRequest)
	return func(context.Context) Reply {
		resp := wire.NewApiVersionsResponse()
		if code := c.srv.checkClient(h.Version, req); code != wire.None {
			resp.ErrorCode = c.srv.code(code)
			return Reply{Body: resp}
		}
		resp.ApiKeys = c.srv.advertised()
		c.srv.features(h.Version, resp)
		return Reply{Body: resp}
	}
}

// hiddenFeatures is the last version whose clients must not see a feature that has
// the minimum level 0.
const hiddenFeatures = 3

// features names the level of group.version, by which clients know that groups of
// the consumer protocol are coordinated here.
func (s *server) features(version int16, resp *wire.ApiVersionsResponse) {
	const name, level = "group.version", 1
	if version > hiddenFeatures {
		resp.SupportedFeatures = []wire.SupportedFeature{{Name: name, MinVersion: 0, MaxVersion: level}}
	}
	resp.FinalizedFeatures = []wire.FinalizedFeature{{Name: name, MaxVersionLevel: level, MinVersionLevel: level}}
	resp.FinalizedFeaturesEpoch = int64(s.backend.image().Index())
}

// unsupportedApiVersions answers, in version 0, a request of a version that is
// not known: with the error, and the versions of this one API.
func unsupportedApiVersions(s *server) Pending {
	return func(context.Context) Reply {
		resp := wire.NewApiVersionsResponse()
		resp.ErrorCode = s.code(wire.UnsupportedVersion)
		resp.ApiKeys = []wire.ApiVersion{s.served(wire.KeyApiVersions).advertised()}
		return Reply{Body: resp}
	}
}

// advertised lists what this broker serves, which is what has a handler.
func (s *server) advertised() []wire.ApiVersion {
	var out []wire.ApiVersion
	for _, api := range s.apis {
		if api != nil {
			out = append(out, api.advertised())
		}
	}
	return out
}

func (a *servedAPI) advertised() wire.ApiVersion {
	return wire.ApiVersion{ApiKey: a.api.Key, MinVersion: a.api.AdvertisedMin, MaxVersion: a.api.Max}
}

// checkClient says what is wrong with how a client introduces itself.
func (s *server) checkClient(version int16, req *wire.ApiVersionsRequest) wire.Code {
	if version >= 3 && !(validSoftware(req.ClientSoftwareName) && validSoftware(req.ClientSoftwareVersion)) {
		return wire.InvalidRequest
	}
	if version < 5 {
		return wire.None
	}
	wrongCluster := req.ClusterID != nil && *req.ClusterID != s.backend.image().ClusterID()
	wrongNode := req.NodeID >= 0 && req.NodeID != int32(s.backend.self)
	if wrongCluster || wrongNode {
		return wire.RebootstrapRequired
	}
	return wire.None
}

// validSoftware tells whether s is letters, digits, '-' and '.', and neither
// begins nor ends with one of the latter two.
func validSoftware(s string) bool {
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.':
		default:
			return false
		}
	}
	return s != "" && strings.Trim(s, "-.") == s
}
