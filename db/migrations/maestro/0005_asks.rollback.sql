-- Functions are replayed by every installation: there is nothing to take back.
select 1;
