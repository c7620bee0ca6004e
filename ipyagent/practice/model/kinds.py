"""The patterns that tell what a request asks for, in English and Chinese; the first that matches wins."""

from __future__ import annotations

# (kind, pattern), in the order in which they are tried.
KINDS: tuple[tuple[str, str], ...] = (
    ("run", r"```|^(?:run|execute|运行|执行)(?:\s*(?:this|the following))?(?:\s*code|\s*代码)?\s*[:：]|^(?:run"
        r"|execute|运行|执行)\s+`"),
    ("why", r"\bwhy\b.*\b(?:fail|error|wrong|not work|didn't work|break|broke|crash)|\bexplain\b.*\berror\b"
        r"|\bwhat went wrong\b|为什么.*(?:失败|出错|报错|不行)|解释.*(?:错误|报错)|哪里(?:出错|错)了"),
    ("rebuild", r"\b(?:rebuild|recreate|re-create|re-?load (?:it|them|that))\b|重建|重新(?:加载|创建|构建|读取"
        r"|生成)(?!.*\.\w)"),
    ("first_question", r"(?:my|the) (?:very )?(first|last|previous) (?:question|request|message)"
        r"|what did i (?:first )?ask(?: you)? (?:first|last)?"
     r"|我(?:的)?(?:第一个|最初|最早|上一个|最先|一开始|刚才)(?:的)?(?:问题|请求|问了|问的)"),
    ("discuss", r"\bwhat (?:have|did|were|are) (?:we|you and i)\b.*\b(?:discuss|talk|do|done|cover|say|look)"
        r"|\b(?:summari[sz]e|recap)\b.*\b(?:conversation|chat|session|discussion|so far)"
     r"|(?:刚才|之前|我们|前面|到目前为止|到现在|至今|目前).*(?:讨论|聊|谈|说|做|干)(?:过|了|完)|(?:总结"
     r"|回顾).*(?:对话|会话|谈话|讨论|聊天)"),
    ("remember", r"^(?:remember|memori[sz]e|note|keep in mind|don't forget)\b(?! (?:what|when|how))|^(?:记住"
        r"|请记住|记一下|记下|别忘了)|\bremember that\b"),
    ("forget", r"^forget\b|^(?:忘记|忘掉|忘了)|\bforget (?:that|about|what)\b|删除.*记忆"),
    ("recall", r"\bwhat do you (?:remember|know|recall) (?:about|of)\b|\bdo you (?:still )?(?:remember"
        r"|recall)\b|^recall\b|你?还?记得.*[吗什么哪]|^回忆|记忆里|\b(?:show|list) .*memor(?:y|ies)\b"),
    ("compact", r"^compact\b|\bcompact (?:the|this|our) (?:context|conversation|session|history)"
        r"|压缩.*(?:上下文|对话|会话|历史)"),
    ("load_skill", r"\b(?:load|use|apply|find)\b.*\bskills?\b|\bwhich skill\b|(?:加载|使用|用|载入).*技能"),
    ("plan", r"\b(?:make|write|draw up|give me|propose|create) (?:a|the) plan\b|^plan\b|(?:制定|做|写|列"
        r"|给).{0,4}计划|^规划|先计划"),
    ("delegate", r"\bdelegate\b|\bsub-?agents?\b|\b(?:another|an|separate) agent\b|子代理|子智能体|子任务代理"
        r"|委派|委托"),
    ("around", r"\blook around\b|\bwhat(?:'s| is| do (?:we|i) have)(?: available)? (?:here|in (?:here"
        r"|this (?:project|notebook|session|folder)))|\bwhat do (?:we|i) have\b|\bwhere (?:are we|do we stand)\b"
     r"|看看(?:这里|周围|环境|有什么|都有)|四处看看|环境里|有些什么东西"),
    ("files", r"\b(?:list|show|which|what|see|find)\b.*\bfiles?\b(?!.*\.\w)|^(?:ls|dir)$|(?:哪些|什么|列出|显示"
        r"|查看|所有).{0,6}文件(?!名)"),
    ("variables", r"\b(?:list|show|what|which|see)\b.*\b(?:variables?|data ?frames|objects|in memory)\b"
        r"|^(?:vars|variables|who|whos)$|(?:哪些|什么|列出|显示|查看|所有).{0,6}(?:变量|数据框)"),
    ("fill", r"^fill\b|\bfill(?: in)? (?:the |all |any )*(?:missing|nans?|nulls?|empty|blanks?|them|it)\b"
        r"|\bfillna\b|\bimpute\b"
        r"|\breplace\b.*\b(?:missing|nans?|nulls?)\b|填充|填补|填上|补全|(?:缺失|空值).*(?:替换|设为|改为|补为"
        r"|补成|填为|填成)"),
    ("outliers", r"\boutliers?\b|\biqr\b|离群|异常值|异常点"),
    ("plot", r"\bdistribution of\b|^colou?r\b.*\bby\b|着色|上色|分色|"
        r"\b(?:plot|draw|chart|graph|visuali[sz]e|histograms?|scatter|box ?plots?|bar ?(?:plot|chart)s?"
        r"|line ?(?:plot|chart)s?)\b|画|绘|作图|图表|直方图|散点图|箱线图|柱状图|条形图|折线图|可视化|分布图"),
    ("fit", r"\b(?:fit|regress(?:ion)?|predict|ols|linear model|least squares|train)\b|拟合|回归|预测|线性模型"),
    ("correlate", r"\brelated\b|\brelation(?:ship)?\b|\bassociat\w*|\baffects?\b|\bdepends? on\b|关系|关联|影响|"
        r"\bcorrelat\w*\b|相关"),
    ("drop", r"\b(?:drop|remove|delete)\b.*\b(?:missing|nans?|nulls?|incomplete)\b|(?:删除|去掉|去除"
        r"|剔除).*(?:缺失|空值)"),
    ("missing", r"\bmissing\b|\bnulls?\b|\bnan?s?\b(?=.*\b(?:values?|count|are|any)\b)|\bnans\b|\bincomplete\b"
        r"|缺失|空值|缺少|丢失"),
    ("share", r"\bwhat (?:share|percent(?:age)?|proportion|fraction|part)\b"
        r"|\b(?:share|percent(?:age)?|proportion|fraction) of\b"
        r"|\bhow many per ?cent\b|\bpercentages?\b|\bproportions?\b|占比|百分比|百分之几|比例|份额|占.{0,8}多少"
        r"|占多少|占几成"),
    ("compare", r"\bcompare\b|\bdifferences?\b|\bdiffer\b|\bdo .*differ|\bversus\b|\bvs\b|比较|对比|差异|差别|相比"
        r"|比.{1,20}[高低多少大小贵重长]多少|差多少|相差"),
    ("columns", r"\b(?:what|which|list|show)\b.*\bcolumns?\b|\bcolumn names?\b|\bdtypes?\b|有哪些列|哪些字段"
        r"|列名|字段名|什么列"),
    ("values", r"\bunique\b|\bdistinct\b|\bwhat values\b|"
        r"\bvalue.?counts?\b|\bhow many (?:of each|per|in each|for each|by)\b|\bcounts? (?:by|per"
        r"|of each|for each)\b|\bhow many .*\b(?:per|in each|for each|by|of each|on each|each)\b|\bfrequenc(?:y"
        r"|ies)\b"
     r"|每(?:个|种|类|一).*(?:多少|几)|各.*(?:多少|几|数量|个数|人数)|每.*人数|每\S{1,10}的\S{0,4}数$|频数"
     r"|计数分布|取值|唯一值|去重"),
    ("rows", r"\b(?:show|display|see|print|give|list|filter|select|find|keep)\b.*\b(?:rows?|records?|where"
        r"|head)\b|\bfirst (?:few |\d+ )?rows\b"
        r"|^head\b|筛选|过滤|(?:显示|看|列出|查看).*(?:前.{0,4}行|行)|前\s*(?:\d+|[一二三四五十几])\s*行"),
    ("top", r"\b(?:which|what|who)\b.*\b(?:most|fewest|least)\b|\b(?:sort|order)(?:ed)?\b.*\bby\b|排序|"
        r"\b(?:top|first|largest|biggest|highest|heaviest|oldest|longest|tallest|smallest|lowest|lightest"
        r"|youngest|shortest|cheapest|most expensive|bottom|deadliest)\s+(?:\d+|one|two|three|five|ten)\b"
        r"|\b\d+ (?:largest|biggest|highest|heaviest|oldest|longest|smallest|lowest|lightest|youngest|shortest"
        r"|cheapest|most|least|top|deadliest)\b"
     r"|\b(?:which|who|what)\b.*\b(?:heaviest|oldest|longest|lightest|youngest|shortest|cheapest|most expensive"
     r"|largest|highest|biggest|smallest|lowest|deadliest)\b|\b(?:heaviest|lightest|oldest|youngest|deadliest)\b"
     r"|最(?:大|高|重|长|贵|多|老|小|低|轻|短|少|便宜|年轻)的?.{0,6}?(?:\d+|[一二三四五十])\s*(?:个|只|条|行|名"
     r"|家|位|辆|种)?|前\s*(?:\d+|[一二三四五十])\s*(?:个|只|条|行|名|家|位|辆|$)|(?:哪|谁).*最|最(?:大|高|重"
     r"|长|贵|多|老|小|低|轻|短|少|便宜|年轻).*(?:哪|谁)|最(?:大|高|重|长|贵|多|老|小|低|轻|短|少|便宜"
     r"|年轻)的(?!值|数$)[^的,，]{1,6}$"),
    ("how_many", r"\bhow many\b|\bnumber of\b|\bcount (?:the )?(?:rows|of|records|all|\w+)|\bhow (?:big"
        r"|large)\b|(?:订单|行|记录|人|客户|样本|用户)数$|多少|几行|几个|行数|多大|有几"),
    ("profile", r"\bprofile\b|\bsummar(?:y|i[sz]e)\b(?!.*\bby\b)|\boverview\b|\bdescribe\b|\bexplore\b|\beda\b"
        r"|\btell me about\b|\bdescriptive\b|概览|概况|概括|描述|探索|总览|画像|剖析|了解.*数据|总结"),
    ("find", r"\bwhat(?:'s| is| was)(?: in| inside)? `?[A-Za-z_]\w*`?\??$|\b(?:find|where is|what type is"
        r"|type of|inspect|show)\b.*\bvariable\b|\b(?:inspect|show me|show|print|display)\s+`?[A-Za-z_]\w*`?$"
        r"|变量.*(?:是什么|在哪|什么样)|[A-Za-z_]\w*\s*(?:是什么|里有什么|长什么样)"),
)  # fmt: skip
