CREATE TEMPORARY LIVE VIEW recent AS SELECT user, page FROM STREAM(web.page_views) WHERE page <> '/health';

CREATE OR REFRESH LIVE TABLE visitors AS SELECT page, count(DISTINCT user) AS visitors FROM LIVE.recent GROUP BY page;
