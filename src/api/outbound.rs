//! Where client-supplied URLs may send the server: hosts of providers, and the images and files a provider fetches.
//!
//! The URL is parsed as the platform's `fetch` parses it, so `2130706433` and `0x7f.1` are the addresses they stand
//! for. What a public name resolves to is unknown here: the platform has no resolver to ask first.

use url::{Host, ParseError, Url};

/// Which hosts a deployment lets its clients name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Hosts of the public internet, over TLS.
    Public,
    /// Any host: for local development.
    Anywhere,
}

/// IPv4 networks that are not public: prefix, bits, and what they are.
/// Source: IANA's IPv4 Special-Purpose Address Registry, and RFC 5771 for multicast.
const IPV4: [([u8; 4], u32, &str); 17] = [
    ([0, 0, 0, 0], 8, "unspecified"),
    ([10, 0, 0, 0], 8, "private"),
    ([100, 64, 0, 0], 10, "shared"),
    ([127, 0, 0, 0], 8, "loopback"),
    ([169, 254, 0, 0], 16, "link-local"),
    ([172, 16, 0, 0], 12, "private"),
    ([192, 0, 0, 0], 24, "reserved"),
    ([192, 0, 2, 0], 24, "documentation"),
    ([192, 88, 99, 0], 24, "reserved"),
    ([192, 168, 0, 0], 16, "private"),
    ([198, 18, 0, 0], 15, "benchmark"),
    ([198, 51, 100, 0], 24, "documentation"),
    ([203, 0, 113, 0], 24, "documentation"),
    // A public address used for a cloud's internal services, such as Azure's.
    ([168, 63, 129, 16], 32, "cloud service"),
    ([224, 0, 0, 0], 4, "multicast"),
    ([255, 255, 255, 255], 32, "broadcast"),
    ([240, 0, 0, 0], 4, "reserved"),
];

/// The one part of IPv6 allocated to the public internet.
const GLOBAL_IPV6: ([u16; 8], u32) = ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// Named IPv6 networks, inside and outside of that part.
/// Source: IANA's IPv6 Special-Purpose Address Registry.
const IPV6: [([u16; 8], u32, &str); 11] = [
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, "unspecified"),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, "loopback"),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, "private"),
    ([0x100, 0, 0, 0, 0, 0, 0, 0], 64, "reserved"),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "documentation"),
    // Teredo, ORCHID, benchmarks and other protocols; no host of the public internet has one.
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "reserved"),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "documentation"),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "private"),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "link-local"),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, "site-local"),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "multicast"),
];

/// IPv6 networks whose addresses embed an IPv4 address, and how many bits precede it.
const EMBEDDING: [([u16; 8], u32, u32); 5] = [
    ([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, 96),    // mapped
    ([0, 0, 0, 0, 0xffff, 0, 0, 0], 96, 96),    // translated
    ([0, 0, 0, 0, 0, 0, 0, 0], 96, 96),         // compatible
    ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, 96), // NAT64
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, 16),    // 6to4
];

/// Names that only resolve inside a network, alone and as suffixes.
const INTERNAL: [&str; 4] = ["localhost", "local", "internal", "home.arpa"];

/// Says what is wrong with a URL the server is asked to send requests to.
pub fn check_url(url: &str, reach: Reach) -> Result<(), String> {
    let url = Url::parse(url).map_err(|e| match e {
        ParseError::IdnaError if !url.is_ascii() => "must have an ASCII host (xn--…)".to_string(),
        e => format!("not a URL: {e}"),
    })?;
    match (reach, url.scheme()) {
        (_, "https") | (Reach::Anywhere, "http") => {}
        (Reach::Public, _) => return Err("must be an https URL".into()),
        (Reach::Anywhere, _) => return Err("must be an http or https URL".into()),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not contain a user name or a password".into());
    }
    let host = url.host().ok_or("must have a host")?;
    let refused = match reach {
        Reach::Anywhere => None,
        Reach::Public => inside(&host),
    };
    match refused {
        None => Ok(()),
        Some(kind) => Err(format!("must be on the public internet; {host} is a {kind}")),
    }
}

/// The same for the URL of an image or a file in a message, which may also be a data URL.
pub fn check_part_url(url: &str, reach: Reach) -> Result<(), String> {
    match url.get(..5) {
        Some(scheme) if scheme.eq_ignore_ascii_case("data:") => Ok(()),
        _ => check_url(url, reach),
    }
}

/// What kind of non-public host this is.
fn inside(host: &Host<&str>) -> Option<String> {
    match host {
        Host::Ipv4(ip) => ipv4(u32::from(*ip)).map(|kind| format!("{kind} address")),
        Host::Ipv6(ip) => ipv6(u128::from(*ip)).map(|kind| format!("{kind} address")),
        Host::Domain(name) => {
            let name = name.trim_end_matches('.');
            let internal = INTERNAL.iter().any(|end| {
                name.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('.'))
            });
            (internal || !name.contains('.')).then(|| "name of a local network".into())
        }
    }
}

fn ipv4(ip: u32) -> Option<&'static str> {
    let within = |(net, bits, _): &&([u8; 4], u32, _)| (ip ^ u32::from_be_bytes(*net)).leading_zeros() >= *bits;
    IPV4.iter().find(within).map(|(_, _, kind)| *kind)
}

fn ipv6(ip: u128) -> Option<&'static str> {
    let within = |net: &[u16; 8], bits: u32| (ip ^ joined(net)).leading_zeros() >= bits;
    if let Some((_, _, kind)) = IPV6.iter().find(|(net, bits, _)| within(net, *bits)) {
        return Some(kind);
    }
    if let Some((_, _, before)) = EMBEDDING.iter().find(|(net, bits, _)| within(net, *bits)) {
        let [a, b, c, d, ..] = (ip << before).to_be_bytes();
        return ipv4(u32::from_be_bytes([a, b, c, d]));
    }
    let (net, bits) = GLOBAL_IPV6;
    (!within(&net, bits)).then_some("reserved")
}

fn joined(net: &[u16; 8]) -> u128 {
    net.iter().fold(0, |ip, part| ip << 16 | u128::from(*part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_public_internet_is_reached() {
        let urls = [
            "https://api.openai.com/v1",
            "https://api.openai.com./v1",
            "HTTPS://API.Example.COM:8443/v1?a=b#c",
            "https://xn--bcher-kva.example.net/",
            "https://localhost.example.com/",
            "https://notlocal.example.com/",
            "https://mylocalhost.io/",
            "https://1.1.1.1/v1",
            "https://8.8.8.8./",
            "https://134744072/",
            "https://172.32.0.1/",
            "https://100.128.0.1/",
            "https://198.20.0.1/",
            "https://[2606:4700:4700::1111]/",
            "https://[::ffff:8.8.8.8]/",
            "https://[64:ff9b::8.8.8.8]/",
            "https://[2002:808:808::1]/",
        ];
        for url in urls {
            assert_eq!(check_url(url, Reach::Public), Ok(()), "{url}");
            assert_eq!(check_url(url, Reach::Anywhere), Ok(()), "{url}");
        }
    }

    #[test]
    fn every_spelling_of_an_inner_address_is_refused() {
        let cases = [
            // One address in the spellings that the URL standard knows.
            ("127.0.0.1", "loopback"),
            ("127.0.0.1.", "loopback"),
            ("2130706433", "loopback"),
            ("0x7f000001", "loopback"),
            ("0x7f.1", "loopback"),
            ("0x7F.0.0.0x1", "loopback"),
            ("0177.0.0.1", "loopback"),
            ("017700000001", "loopback"),
            ("127.1", "loopback"),
            ("127.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("%31%32%37.0.0.1", "loopback"),
            // Every network, at both ends.
            ("0", "unspecified"),
            ("0.0.0.0", "unspecified"),
            ("0.255.255.255", "unspecified"),
            ("10.0.0.0", "private"),
            ("10.255.255.255", "private"),
            ("100.64.0.0", "shared"),
            ("100.127.255.255", "shared"),
            ("168.63.129.16", "cloud service"),
            ("169.254.169.254", "link-local"),
            ("169.254.0.0", "link-local"),
            ("172.16.0.0", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.170", "reserved"),
            ("192.0.2.1", "documentation"),
            ("192.88.99.1", "reserved"),
            ("192.168.0.0", "private"),
            ("192.168.255.255", "private"),
            ("198.18.0.0", "benchmark"),
            ("198.19.255.255", "benchmark"),
            ("198.51.100.7", "documentation"),
            ("203.0.113.7", "documentation"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.254", "reserved"),
            ("255.255.255.255", "broadcast"),
            ("0xffffffff", "broadcast"),
            ("[::]", "unspecified"),
            ("[::1]", "loopback"),
            ("[0:0:0:0:0:0:0:1]", "loopback"),
            ("[fc00::1]", "private"),
            ("[fdff::1]", "private"),
            ("[fe80::1]", "link-local"),
            ("[febf::1]", "link-local"),
            ("[fec0::1]", "site-local"),
            ("[ff02::1]", "multicast"),
            ("[100::1]", "reserved"),
            ("[2001::1]", "reserved"),
            ("[2001:db8::1]", "documentation"),
            ("[3fff::1]", "documentation"),
            ("[4000::1]", "reserved"),
            ("[5f00::1]", "reserved"),
            // IPv6 around IPv4.
            ("[::ffff:127.0.0.1]", "loopback"),
            ("[::ffff:7f00:1]", "loopback"),
            ("[::FFFF:a9fe:a9fe]", "link-local"),
            ("[::ffff:0:10.0.0.1]", "private"),
            ("[::127.0.0.1]", "loopback"),
            ("[::2]", "unspecified"),
            ("[64:ff9b::10.0.0.1]", "private"),
            ("[64:ff9b::a9fe:a9fe]", "link-local"),
            ("[64:ff9b:1::8.8.8.8]", "private"),
            ("[2002:7f00:1::]", "loopback"),
            ("[2002:c0a8:101::1]", "private"),
        ];
        for (host, kind) in cases {
            let why = check_url(&format!("https://{host}/v1"), Reach::Public).unwrap_err();
            assert!(why.ends_with(&format!("is a {kind} address")), "{host}: {why}");
            assert_eq!(check_url(&format!("http://{host}/v1"), Reach::Anywhere), Ok(()), "{host}");
        }
    }

    #[test]
    fn names_of_local_networks_are_refused() {
        let names = [
            "localhost",
            "localhost.",
            "LOCALHOST",
            "loc%61lhost",
            "a.b.localhost",
            "printer.local",
            "printer.local.",
            "metadata.google.internal",
            "internal",
            "nas.home.arpa",
            "home.arpa",
            "intranet",
            "intranet.",
        ];
        for name in names {
            let why = check_url(&format!("https://{name}/"), Reach::Public).unwrap_err();
            assert!(why.ends_with("is a name of a local network"), "{name}: {why}");
            assert_eq!(check_url(&format!("http://{name}:8080/"), Reach::Anywhere), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_host_is_written_in_ascii() {
        let hosts =
            ["bücher.example.net", "１２７.０.０.１", "①②⑦.⓪.⓪.①", "127。0。0。1", "ｌocalhost", "intranet。"];
        for host in hosts {
            for reach in [Reach::Public, Reach::Anywhere] {
                let why = check_url(&format!("https://{host}/"), reach).unwrap_err();
                assert_eq!(why, "must have an ASCII host (xn--…)", "{host}");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cases = [
            ("", "not a URL"),
            ("api.openai.com/v1", "not a URL"),
            ("https://", "not a URL"),
            ("https:///", "not a URL"),
            ("https://1.2.3.4.5/", "not a URL"),
            ("https://256.0.0.1/", "not a URL"),
            ("https://[::1/", "not a URL"),
            ("https://[fe80::1%25eth0]/", "not a URL"),
            ("https://a b.example.com/", "not a URL"),
            ("https://%ef%bd%8cocalhost/", "not a URL"),
            ("http://api.example.com/", "https URL"),
            ("ftp://api.example.com/", "https URL"),
            ("file:///etc/passwd", "https URL"),
            ("javascript:alert(1)", "https URL"),
            ("data:text/plain,x", "https URL"),
            ("localhost:8080", "https URL"),
            ("https://someone@api.example.com/", "user name"),
            ("https://someone:hunter2@api.example.com/", "user name"),
            ("https://:hunter2@api.example.com/", "user name"),
            ("https://api.example.com:hunter2@127.0.0.1/", "user name"),
        ];
        for (url, what) in cases {
            let why = check_url(url, Reach::Public).unwrap_err();
            assert!(why.contains(what) && !why.contains("hunter2"), "{url}: {why}");
        }
        for url in ["ftp://x/", "https://a:b@x/", "", "http://"] {
            assert!(check_url(url, Reach::Anywhere).is_err(), "{url}");
        }
    }

    #[test]
    fn what_only_looks_like_another_host_is_read_as_fetch_reads_it() {
        let refused = [
            "https:127.0.0.1",
            "https:\\\\127.0.0.1\\",
            "https://127.0.0.1\\@api.example.com/",
            " https://127.0.0.1",
            "https://127.0.0.1#@api.example.com/",
            "ht\ntps://127.0\t.0.1/",
        ];
        for url in refused {
            assert!(check_url(url, Reach::Public).unwrap_err().contains("loopback"), "{url:?}");
        }
    }

    #[test]
    fn a_part_may_hold_its_data() {
        for url in ["data:image/png;base64,iVBORw0KGgo=", "DATA:,x", "https://example.com/a.png"] {
            assert_eq!(check_part_url(url, Reach::Public), Ok(()), "{url}");
        }
        for url in
            ["https://127.0.0.1/a.png", "blob:https://example.com/x", "file-123", "http://example.com/a.png"]
        {
            assert!(check_part_url(url, Reach::Public).is_err(), "{url}");
        }
        assert_eq!(check_part_url("http://localhost/a.png", Reach::Anywhere), Ok(()));
    }
}
