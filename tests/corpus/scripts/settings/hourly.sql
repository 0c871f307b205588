SELECT city, count(*) AS rides FROM rides GROUP BY city
