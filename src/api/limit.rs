//! Rate limits: token buckets.

use super::{Code, Error};

/// A rate and its burst. A rate of 0 is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests per second.
    pub per_second: u32,
    /// The burst, in requests.
    pub burst: u32,
}

/// A token bucket. Counts thousandths of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    spent: u64,
    at: u64,
}

impl Bucket {
    /// Takes one request at `now` (milliseconds), or returns how long to wait.
    pub fn take(&mut self, rate: Rate, now: u64) -> Result<(), Error> {
        if rate.per_second == 0 {
            return Ok(());
        }
        let filled = now.saturating_sub(self.at).saturating_mul(u64::from(rate.per_second));
        self.spent = self.spent.saturating_sub(filled);
        self.at = self.at.max(now);
        let room = u64::from(rate.burst.max(1)).saturating_mul(1000);
        if self.spent.saturating_add(1000) <= room {
            self.spent = self.spent.saturating_add(1000);
            return Ok(());
        }
        let lacking = self.spent.saturating_add(1000).saturating_sub(room);
        let millis = lacking.div_ceil(u64::from(rate.per_second));
        let seconds = u32::try_from(millis.div_ceil(1000)).unwrap_or(u32::MAX).max(1);
        let message = format!("more than {} requests per second; try again in {seconds} s", rate.per_second);
        Err(Error { retry_after: Some(seconds), ..Error::new(Code::RateLimited, message) })
    }

    /// Whether the bucket is as full as a new one, and can be dropped.
    pub fn is_full(&self, rate: Rate, now: u64) -> bool {
        now.saturating_sub(self.at).saturating_mul(u64::from(rate.per_second)) >= self.spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_steady_rate() {
        let rate = Rate { per_second: 2, burst: 3 };
        let mut bucket = Bucket::default();
        let mut take = |now| bucket.take(rate, now).map_err(|error| (error.code, error.retry_after));
        assert_eq!([take(1000), take(1000), take(1000)], [Ok(()), Ok(()), Ok(())]);
        assert_eq!(take(1000), Err((Code::RateLimited, Some(1))));
        assert_eq!(take(1400), Err((Code::RateLimited, Some(1))));
        assert_eq!([take(1500), take(1900)], [Ok(()), Err((Code::RateLimited, Some(1)))]);
        assert!(!bucket.is_full(rate, 2000));
        assert!(bucket.is_full(rate, 9000));
        assert_eq!(Bucket::default().take(Rate { per_second: 0, burst: 0 }, 0), Ok(()));
    }
}
